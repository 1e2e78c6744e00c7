"""fabled under the system's service manager: what is written for it, how it is asked, and how all that goes again.

What a person is asked and told is left to `cli`. The templates lie beside the sources, in `service/`.
"""
