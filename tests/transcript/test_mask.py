"""Which strings count as credentials, and that masking never costs more than its text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabled.transcript.mask import MASKED, mask

LETTERS = "EXAMPLEexample0123456789"
LONG = LETTERS * 3
KEYS = [
    "sk-ant-api03-" + LONG,
    "sk-proj-" + LONG,
    "sk-" + LONG,
    "sk-" + "example" * 6,
    "ghp_" + LONG[:36],
    "github_pat_11ABC_" + LONG,
    "AKIA" + "EXAMPLE0EXAMPLE1",
    "ASIA" + "EXAMPLE0EXAMPLE1",
    "xoxb-" + "1234567890-1234567890-" + LETTERS,
    "sk_" + "live_" + LETTERS,
    "rk_" + "live_" + LETTERS,
    "whsec_" + "example" * 5,
    "AIza" + LONG[:35],
    "glpat-" + LETTERS[:20],
    "npm_" + LONG[:36],
    "pypi-AgEIcHlwaS5vcmc" + LONG,
    "hf_" + LONG[:34],
    "SG." + LETTERS + "." + LETTERS,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.c2lnbmF0dXJlLXNpZ25hdHVyZQ",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEexample+/\nexampleexample==\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\\nMIIEexample\\n-----END PRIVATE KEY-----\\n",
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAAexample",
]


@pytest.mark.parametrize("key", KEYS)
def test_issued_keys_are_masked(key: str) -> None:
    """A key anywhere in a text leaves at most its first six characters, and the words around it stay."""
    for text in (f"before {key} after", key, f'x("{key}")', f"a={key}\nb"):
        shown = mask(text)
        assert key[:7] not in shown
        assert key[-12:-3] not in shown
        assert MASKED in shown
    shown = mask(f"before {key}\nand after")
    assert shown.startswith("before ")
    assert shown.endswith("and after")


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("postgres://app:hunter2example@db.example.com:5432/app", "hunter2"),
        ("redis://:hunter2example@cache:6379", "hunter2"),
        ("amqp://app:p%40ss@word1@mq/vhost", "ss@word"),
        ("STRIPE_WEBHOOK_SECRET=hunter2example", "hunter2"),
        ("export DB_PASSWORD='correct horse'", "horse"),
        ("DB_PASS=hunter", "hunter"),
        ("POSTGRES_PASSWORD: postgresql\n", "postgresql"),
        ("password: hunter2example", "hunter2"),
        ('{"password": "hunter2example", "user": "ana"}', "hunter2"),
        ('{"apiKey":"abcdefghijkl"}', "abcdef"),
        (json.dumps({"body": json.dumps({"client_secret": "abcdefghijkl"})}), "abcdef"),
        (json.dumps(json.dumps({"body": json.dumps({"token": 'abc"defghijkl'})})), "ghijkl"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "wJalrXU"),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "wJalrXU"),
        ("Authorization: Bearer abcdefghijklmnop", "abcdefg"),
        ("curl -H 'Authorization: Basic dXNlcjpwYXNz' x", "dXNlcjp"),
        ('"authorization": "token 0123456789abcdef"', "0123456"),
        ("bearer 0123456789abcdef", "0123456"),
        ("x-api-key: 0123456789abcdef", "0123456"),
        ("?access_token=0123456789abcdef&x=1", "0123456"),
        ("mysql --password hunter2example app", "hunter2"),
        ('os.environ["API_TOKEN"] = "abcdefghijkl"', "abcdef"),
        ("//registry.example/:_authToken=0123456789abcdef", "0123456"),
        ("Server=db;Uid=app;Pwd=hunter2example;", "hunter2"),
        ("SECRET_KEY_BASE=0123456789abcdef0123456789abcdef", "0123456"),
        ("hooks.slack.com/services/T0000EXAMPLE/B0000/" + LETTERS, LETTERS[:7]),
        ("mysql -u root -phunter app", "hunter"),
        ("mysqldump -uroot -p'correct horse' db > x", "horse"),
        ("mysql --password hunter app", "hunter"),
        ("curl -s -u ana:hunter https://example.com", "hunter"),
        ("curl -u 'ana:correct horse' x", "horse"),
        ("curl \\\n  --user ana:hunter \\\n  x", "hunter"),
        ("PGPASSWORD=hunter psql -h db", "hunter"),
        ("SSHPASS=hunter sshpass -e ssh a@b", "hunter"),
        ("sshpass -p hunter ssh ana@host", "hunter"),
        ("docker login -u ana -p hunter registry.example", "hunter"),
        ("redis-cli -a hunter ping", "hunter"),
        ("mongosh -u ana -p hunter db", "hunter"),
        ("psql 'host=db password=hunter'", "hunter"),
        ("openssl rsa -in k -passin pass:hunter", "hunter"),
        ("unzip -P hunter a.zip", "hunter"),
        ("echo 'hunter' | sudo -S ls", "hunter"),
        ("echo hunter | docker login -u ana --password-stdin", "hunter"),
        (json.dumps({"command": 'mysql -p"correct horse" x'}), "horse"),
        (json.dumps(json.dumps({"command": "curl -u ana:hunter x\nls"})), "hunter"),
        ('subprocess.run(["mysql", "-u", "root", "-phunter"])', "hunter"),
        ('["curl", "-u", "ana:hunter", "x"]', "hunter"),
    ],
)
def test_assigned_secrets_are_masked(text: str, secret: str) -> None:
    """What a name, a header or an address says is secret is masked; masking again changes nothing."""
    shown = mask(text)
    assert secret not in shown
    assert MASKED in shown
    assert mask(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "the tests use sha 9f86d081884c7d659a2feaa0c55ad015 and uuid 123e4567-e89b-12d3-a456-426614174000",
        "commit 3b1e5d9c0f7a4e2b8d6c1a9f0e3d5b7c9a1f2e4d",
        "token = get_token()",
        "token = get_token_v2\n",
        "const token = process.env.TOKEN;",
        "self.token = token",
        "password = None",
        "def login(user: str, password: str) -> Token:",
        "token: Optional[str] = None",
        "max_tokens: 4096, input_tokens = 123456, token=5",
        'if token == "abc":',
        "API_KEY=$API_KEY TOKEN=${TOKEN} PASSWORD=<password> SECRET=***",
        "API_KEY = os.environ['API_KEY']",
        '"password": "Must be at least 8 characters"',
        '"type": "password", "token": "string"',
        "The password: required for login. The secret: patience.",
        "PWD=/home/ana OLDPWD=/home PASS: all 12 tests, 3 passed",
        "https://example.com:8080/a@b and git@github.com:a/b.git",
        "sk-folding-cube-wrapper pypi-publish-action-helper risk-assessment-for-everyone",
        "--- PASS: TestSession_SetsParentFromExisting1 (0.00s)",
        "ownerPrivateKey: Uint8Array, token: u64",
        'API_KEY=your-key-here and api_key = "[REDACTED]"',
        "bearer authentication is what the Authorization: header does",
        "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
        "monkey: banana1 keyboard=qwerty1 tokenizer=bert2",
        "for token in tokens: count[token] = 1",
        "import secrets; secret_name: db",
        "path/to/key.py:12: password_hash = hash(password)",
        "",
        "İstanbul token",
        "mysql -u root -p app; the mysql client asks with -p for it",
        'mysql -p"$PW" -p$PW -p${PW} --password=$(cat pw) -P3306 --port 3306',
        "docker run --name mysql -p3306:3306 -p 80:80 mysql -p 5432/tcp",
        "mysql -e 'select 1' && mkdir -pv out; cp -pr a b | mysql -N",
        "curl -u $USER:$TOKEN -u user:password -u ana: -fsSL -o /tmp/x --user-agent me:you",
        "sshpass -p to give one, sshpass -f file, sshpass -e",
        "docker login -u ana --password-stdin; podman run -p host:guest",
        "7z x a.7z; zip -r out.zip -P; redis-cli -a; mongo -p 27017",
        "echo $PW | sudo -S ls; echo yes | sudo tee x; wget -user=foo --ask-password -user=x",
        "mysqlish -phunter monocurl -u a:b libcurl -u a:b",
    ],
)
def test_words_hashes_and_code_are_not_masked(text: str) -> None:
    """Nothing that only looks like a credential is touched."""
    assert mask(text) == text


def test_a_key_without_end_is_masked_to_its_last_line() -> None:
    """A private key cut by a length limit does not show its body, and the text behind another mark stays."""
    body = "\n".join("MIIEpAIBAAKCAQEA" * 4 for _ in range(9))
    shown = mask(f"see -----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n{body}\n\nWe said no.")
    assert "MIIEpAI" not in shown
    assert shown.startswith("see ")
    assert shown.endswith("We said no.")


CALLS = ("mysql ", "-p", "curl ", "-u ", "sshpass ", "a:", "hunter", "'", '"', "\\", " ", ",", "…", "[masked]", "\n",
         "echo ", " | sudo -S", "--password ", "=", "pass:", "openssl ", "-passin ", ".")  # fmt: skip


@given(
    st.text(st.sampled_from("aA0 =:\"'\\\n-_./@…[]tokensecretBEGIN"), max_size=120)
    | st.lists(st.sampled_from(CALLS), max_size=20).map("".join)
)
@settings(max_examples=300, deadline=None)
def test_masking_twice_is_masking_once(text: str) -> None:
    """A masked text holds nothing more to mask, whatever it was."""
    assert mask(mask(text)) == mask(text)


@pytest.mark.parametrize(
    "piece",
    [
        "a", "sk-", "sk-a", "-----BEGIN", "-----BEGIN PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\n", "eyJ",
        "eyJa.", "eyJaaaaaa.", "://", "://a:", "://a:b", "token", "token=", "token = ", 'token="', 'token\\"', "\\",
        '"',
        "password: ", "authorization: ", "bearer ", "AKIA", "SG.a", "--token ", "--a-", "secret_", "ghp_a", "İ",
        "1:AA", "mysql", "mysql -p", "mysql -pa ", "curl -u ", "curl -u a:", "curl '", 'curl "', "docker login -p ",
        "echo ",
        "echo 'a' | ", "-p ", "sshpass -p\\", "openssl -passin pass:",
    ],
)  # fmt: skip
def test_a_hostile_megabyte_ends(piece: str) -> None:
    """Nothing repeated makes a pattern walk the text again and again (that would outlast the suite's time limit)."""
    text = piece * ((1 << 20) // len(piece))
    assert len(mask(text)) <= 2 * len(text)
