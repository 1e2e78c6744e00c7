"""Words that say nothing about what a conversation is about: grammar, politeness, and what every session is full of.

What is made of them is left to `terms` and `card`.
"""

from __future__ import annotations

COMMON = frozenset(
    """
    a about above across after again against ago ahead all almost along already also although always am among an and
    another any anybody anyone anything anyway are aren around as aside ask asked asking at away back be became because
    become becomes been before began begin behind being below beside besides best better between beyond big bit both
    but by came can cannot case cases certain certainly clear clearly come comes coming complete completed completely
    could couldn couple current currently day days did didn different do does doesn doing don done down due during each
    earlier easily easy either else end ended enough entire especially etc even ever every everyone everything exactly
    example examples except existing expect expected explain explained extra far few final finally find fine finish
    finished first five follow followed following follows for found four from full fully further gave general generally
    get gets getting give given gives giving go goes going gone good got great had hadn half happen happened happens
    hard has hasn have haven having he hello help helped helpful helps hence her here hers hey hi high him his hold how
    however i idea if important in include included includes including indeed inside instead into is isn issue issues
    it item items its itself just keep keeps kept kind knew know known knows large last later latest least leave left
    less let lets like likely line lines list listed little ll long longer look looked looking looks lot low made mainly
    make makes making many matter matters may maybe me mean meaning means meant might mind missing more most mostly
    move much must my myself name named names near necessary need needed needs neither never new newer next nice no
    nobody none nor normal normally not note notes nothing now number numbers obviously of off often oh ok okay old on
    once one ones only onto open or order other others otherwise our ours out outside over overall own part parts past
    per perfect perhaps place please point points possible possibly pretty previous previously probably problem
    problems proper properly provide provided put puts question questions quick quickly quite rather re ready real
    really reason reasons recent recently regarding related remain remaining rest result results right same saw say
    says second see seem seems seen sense set sets several shall she short should shouldn show showed showing shown
    shows side similar simple simply since single six small so some somebody someone something sometimes soon sorry
    sort specific start started starting starts state still stop such suggest sure take taken takes taking tell ten
    than thank thanks that the their theirs them themselves then there therefore these they thing things think third
    this those though thought three through throughout thus time times to today together told too took top total toward
    tried tries true try trying turn turned turns two type types under understand understood unless until up upon us
    use used useful uses using usual usually various ve very via want wanted wants was wasn way ways we well went were
    weren what whatever when whenever where whereas wherever whether which while who whole whom whose why will wish with
    within without won wonder word words work worked working works worth would wouldn wrong yes yet you your yours
    yourself
    add added adding adds change changed changes changing check checked checking checks code command commands create
    created creates creating edit edited edits file files fix fixed fixes fixing folder folders function functions here
    implement implementation implemented implementing look output outputs pass passed passes passing path paths read
    reading reads remove removed removing rename renamed replace replaced report reported return returned returns
    review reviewed run running runs ran save saved step steps summary task tasks test tested testing tests text tool
    tools update updated updates updating user users value values verify verified write writes writing written wrote
    project repository repo let's i'll it's that's there's don't doesn't can't won't isn't i'm you're we're they're i've
    claude assistant todo todos plan plans feature features version versions support supports supported handle handles
    handled handling directly directory directories correct correctly available default defaults sure above below
    approach option options logic message messages data error errors issue content contents context details detail
    """.split()
)
