"""The words that the tasks are made of.

Each is one token (with its leading space) in the word-level tokenizer of the zoo, and in nearly all cases
in GPT-2, SmolLM2, Gemma and Qwen; where one is not, ``prepare`` drops the example and counts it.
"""

from __future__ import annotations

FEMALE = tuple(
    (
        "Mary Alice Emma Sarah Anna Laura Julia Kate Lucy Rose Jane Ella Grace Claire Helen Diana Sophie Nina "
        "Ruth Eva"
    ).split()
)
MALE = tuple(
    "John Tom James David Paul Mark Peter Jack Adam Luke Henry Simon Frank Oscar Kevin Brian Max Leo Carl Dan".split()
)
NAMES = FEMALE + MALE
PLACES = tuple("store park school office garden station library market beach museum".split())
OBJECTS = tuple("drink book ring letter ball gift snack basket".split())
# All start with a consonant, so that "a" is right before each of them.
ADJECTIVES = tuple("new big small clean broken".split())
JOBS = tuple("doctor teacher friend singer writer leader".split())
COLORS = tuple("red blue green yellow black white brown pink orange purple".split())
SINGULAR = tuple(
    (
        "key cabinet dog cat car tree house boat bird chair table lamp window door bottle box cup horse apple "
        "flower clock phone shirt hat"
    ).split()
)
PLURAL = tuple(
    (
        "keys cabinets dogs cats cars trees houses boats birds chairs tables lamps windows doors bottles "
        "boxes cups horses apples flowers clocks phones shirts hats"
    ).split()
)
PREPOSITIONS = tuple("near behind beside by under".split())
EVENTS = tuple("war trip plan study reign siege project voyage".split())
LETTERS = tuple("ABCD")
CAPITALS = tuple(
    (pair.split()[0], pair.split()[1])
    for pair in (
        "France Paris|Germany Berlin|Italy Rome|Spain Madrid|Portugal Lisbon|Austria Vienna|"
        "Poland Warsaw|Greece Athens|Norway Oslo|Sweden Stockholm|Finland Helsinki|Denmark Copenhagen|"
        "Ireland Dublin|Belgium Brussels|Hungary Budapest|Romania Bucharest|Bulgaria Sofia|Russia Moscow|"
        "Ukraine Kyiv|Turkey Ankara|Egypt Cairo|Kenya Nairobi|Ghana Accra|Nigeria Abuja|Senegal Dakar|"
        "Morocco Rabat|Tunisia Tunis|Zambia Lusaka|Uganda Kampala|Angola Luanda|Japan Tokyo|"
        "China Beijing|India Delhi|Thailand Bangkok|Vietnam Hanoi|Nepal Kathmandu|Iran Tehran|"
        "Iraq Baghdad|Syria Damascus|Jordan Amman|Qatar Doha|Oman Muscat|Cuba Havana|Peru Lima|"
        "Chile Santiago|Ecuador Quito|Colombia Bogota|Venezuela Caracas|Canada Ottawa|Jamaica Kingston|"
        "Iceland Reykjavik|Serbia Belgrade|Croatia Zagreb|Latvia Riga|Estonia Tallinn|Lithuania Vilnius|"
        "Malta Valletta|Fiji Suva|Samoa Apia|Bhutan Thimphu"
    ).split("|")
)
# In front of a prompt, so that its first content word is not its first token: there subword tokenizers spell words
# differently and models park attention.
LEADS = ("Today", "Now", "Then", "In fact,", "We know that", "They say that", "It seems that", "Of course,")
