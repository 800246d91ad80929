"""Facts in ten domains: subject and object, and how each domain is asked, as a sentence and as a question.

Facts are plain ones that do not change from year to year. An object is one word; where several spellings or answers are
right (New Delhi, two official languages), the fact is left out.
"""

from __future__ import annotations

from circuittest.tasks.words import CAPITALS


def _table(text: str) -> tuple[tuple[str, str], ...]:
    pairs = (pair.strip().split("=") for pair in text.replace("\n", " ").split("|"))
    return tuple((subject.strip(), found.strip()) for subject, found in pairs)


#: Domain → (subject, object) …
FACTS: dict[str, tuple[tuple[str, str], ...]] = {
    "capital": tuple(pair for pair in CAPITALS if pair[0] != "India"),
    "state_capital": _table(
        "Texas=Austin|California=Sacramento|Georgia=Atlanta|Colorado=Denver|Massachusetts=Boston|Hawaii=Honolulu|"
        "Arizona=Phoenix|Ohio=Columbus|Indiana=Indianapolis|Tennessee=Nashville|Illinois=Springfield|Alaska=Juneau|"
        "Oregon=Salem|Michigan=Lansing|Wisconsin=Madison|Virginia=Richmond|Pennsylvania=Harrisburg|Florida=Tallahassee|"
        "Alabama=Montgomery|Kansas=Topeka|Nebraska=Lincoln|Kentucky=Frankfort|Maryland=Annapolis|Idaho=Boise|"
        "Montana=Helena|Delaware=Dover|Maine=Augusta|Vermont=Montpelier|Mississippi=Jackson|"
        "Connecticut=Hartford|Wyoming=Cheyenne|South Dakota=Pierre|North Dakota=Bismarck|"
        "North Carolina=Raleigh|South Carolina=Columbia|New York=Albany|New Jersey=Trenton|New Hampshire=Concord|"
        "Rhode Island=Providence|West Virginia=Charleston"
    ),
    "language": _table(
        "France=French|Germany=German|Italy=Italian|Spain=Spanish|Portugal=Portuguese|Austria=German|Poland=Polish|"
        "Greece=Greek|Norway=Norwegian|Sweden=Swedish|Denmark=Danish|Hungary=Hungarian|Romania=Romanian|"
        "Bulgaria=Bulgarian|Russia=Russian|Turkey=Turkish|Egypt=Arabic|Japan=Japanese|China=Chinese|Thailand=Thai|"
        "Vietnam=Vietnamese|Iran=Persian|Mexico=Spanish|Brazil=Portuguese|Argentina=Spanish|Chile=Spanish|"
        "Colombia=Spanish|Cuba=Spanish|Iceland=Icelandic|Serbia=Serbian|Croatia=Croatian|Latvia=Latvian|"
        "Estonia=Estonian|Lithuania=Lithuanian|Albania=Albanian|Australia=English|Jamaica=English|Israel=Hebrew|"
        "Syria=Arabic|Jordan=Arabic"
    ),
    "continent": _table(
        "France=Europe|Germany=Europe|Italy=Europe|Spain=Europe|Poland=Europe|Sweden=Europe|Hungary=Europe|"
        "Portugal=Europe|Austria=Europe|Norway=Europe|Kenya=Africa|Ghana=Africa|Nigeria=Africa|Senegal=Africa|"
        "Morocco=Africa|Uganda=Africa|Zambia=Africa|Angola=Africa|Algeria=Africa|Ethiopia=Africa|Japan=Asia|"
        "China=Asia|India=Asia|Thailand=Asia|Vietnam=Asia|Nepal=Asia|Mongolia=Asia|Cambodia=Asia|Laos=Asia|Iraq=Asia"
    ),
    "currency": _table(
        "Japan=yen|China=yuan|India=rupee|Britain=pound|Russia=ruble|Germany=euro|France=euro|Italy=euro|Spain=euro|"
        "Sweden=krona|Norway=krone|Denmark=krone|Poland=zloty|Hungary=forint|Turkey=lira|Thailand=baht|Mexico=peso|"
        "Brazil=real|Canada=dollar|Australia=dollar|Vietnam=dong|Nigeria=naira|Switzerland=franc|Kenya=shilling|"
        "Israel=shekel|Ukraine=hryvnia|Pakistan=rupee|Chile=peso|Egypt=pound|Ireland=euro"
    ),
    "symbol": _table(
        "hydrogen=H|helium=He|lithium=Li|carbon=C|nitrogen=N|oxygen=O|neon=Ne|sodium=Na|magnesium=Mg|aluminum=Al|"
        "silicon=Si|phosphorus=P|sulfur=S|chlorine=Cl|argon=Ar|potassium=K|calcium=Ca|titanium=Ti|chromium=Cr|"
        "iron=Fe|nickel=Ni|copper=Cu|zinc=Zn|silver=Ag|gold=Au|tin=Sn|iodine=I|mercury=Hg|lead=Pb|uranium=U"
    ),
    "author": _table(
        "Hamlet=Shakespeare|Macbeth=Shakespeare|Don Quixote=Cervantes|War and Peace=Tolstoy|Anna Karenina=Tolstoy|"
        "Crime and Punishment=Dostoevsky|Oliver Twist=Dickens|David Copperfield=Dickens|Great Expectations=Dickens|"
        "Pride and Prejudice=Austen|Emma=Austen|Moby Dick=Melville|The Odyssey=Homer|The Iliad=Homer|The Aeneid=Virgil|"
        "Paradise Lost=Milton|Faust=Goethe|The Trial=Kafka|The Metamorphosis=Kafka|Ulysses=Joyce|Dracula=Stoker|"
        "Frankenstein=Shelley|The Hobbit=Tolkien|Animal Farm=Orwell|Brave New World=Huxley|The Great Gatsby=Fitzgerald|"
        "Les Misérables=Hugo|Madame Bovary=Flaubert|The Time Machine=Wells|The Stranger=Camus|Candide=Voltaire"
    ),
    "maker": _table(
        "the iPhone=Apple|the iPad=Apple|Windows=Microsoft|the Xbox=Microsoft|Excel=Microsoft|the PlayStation=Sony|"
        "the Walkman=Sony|the Game Boy=Nintendo|the Wii=Nintendo|Android=Google|Gmail=Google|the Kindle=Amazon|"
        "Alexa=Amazon|Photoshop=Adobe|Acrobat=Adobe|the Mustang=Ford|the Corvette=Chevrolet|the Prius=Toyota|"
        "the Corolla=Toyota|the Civic=Honda|the Accord=Honda|the Golf=Volkswagen|the Galaxy phone=Samsung|"
        "the Pentium=Intel|the Boxster=Porsche|the 747=Boeing|the A380=Airbus"
    ),
    "young": _table(
        "dog=puppy|cat=kitten|cow=calf|sheep=lamb|goat=kid|horse=foal|pig=piglet|bear=cub|lion=cub|duck=duckling|"
        "goose=gosling|chicken=chick|deer=fawn|frog=tadpole|kangaroo=joey|swan=cygnet|fox=cub|elephant=calf|"
        "whale=calf|seal=pup|wolf=pup|tiger=cub"
    ),
    "landmark": _table(
        "the Eiffel Tower=Paris|the Louvre=Paris|Notre Dame=Paris|Big Ben=London|the Tower Bridge=London|"
        "Buckingham Palace=London|the Colosseum=Rome|the Pantheon=Rome|the Trevi Fountain=Rome|the Kremlin=Moscow|"
        "Red Square=Moscow|the Brandenburg Gate=Berlin|the Reichstag=Berlin|the Sagrada Familia=Barcelona|"
        "the Prado=Madrid|the Acropolis=Athens|the Parthenon=Athens|the Forbidden City=Beijing|"
        "the Summer Palace=Beijing|the Opera House=Sydney|the Hagia Sophia=Istanbul|"
        "the Blue Mosque=Istanbul|the Burj Khalifa=Dubai|"
        "the Little Mermaid=Copenhagen|the Charles Bridge=Prague|Wenceslas Square=Prague"
    ),
}

#: Domain → sentences that the object completes.
SENTENCES: dict[str, tuple[str, ...]] = {
    "capital": ("The capital of {subject} is", "The capital city of {subject} is called"),
    "state_capital": ("The capital of the state of {subject} is", "The state capital of {subject} is called"),
    "language": ("The official language of {subject} is", "In {subject}, most people speak"),
    "continent": ("{subject} is a country on the continent of", "{subject} lies on the continent of"),
    "currency": (
        "The currency of {subject} is called the",
        "People in {subject} pay with a currency called the",
    ),
    "symbol": ("The chemical symbol of {subject} is", "In chemistry, the symbol for {subject} is"),
    "author": ("{subject} was written by the author", "The author who wrote {subject} is called"),
    "maker": ("The company that makes {subject} is", "The company behind {subject} is called"),
    "young": ("A young {subject} is called a", "The baby of a {subject} is called a"),
    "landmark": (
        "A visitor who wants to see {subject} has to go to",
        "You can find {subject} in the city of",
    ),
}
#: Domain → questions.
QUESTIONS: dict[str, tuple[str, ...]] = {
    "capital": ("What is the capital of {subject}?", "Which city is the capital of {subject}?"),
    "state_capital": (
        "What is the capital of the state of {subject}?",
        "Which city is the state capital of {subject}?",
    ),
    "language": (
        "What is the official language of {subject}?",
        "Which language do most people in {subject} speak?",
    ),
    "continent": ("On which continent is {subject}?", "{subject} is on which continent?"),
    "currency": ("What is the currency of {subject}?", "What do people in {subject} call their currency?"),
    "symbol": (
        "What is the chemical symbol of {subject}?",
        "Which symbol stands for {subject} in chemistry?",
    ),
    "author": ("Who is the author of {subject}?", "Who wrote {subject}?"),
    "maker": ("Which company makes {subject}?", "Which company is behind {subject}?"),
    "young": ("What is a young {subject} called?", "What do you call the baby of a {subject}?"),
    "landmark": ("In which city is {subject}?", "Which city do you visit to see {subject}?"),
}
