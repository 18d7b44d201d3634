"""Sentences for the tests: everyday ones from the domain of the bundled model, and odd ones."""

from __future__ import annotations

import random

__all__ = ["ODD", "SENTENCES", "random_texts"]

SENTENCES = """
Where is the station?
I would like a cup of coffee.
The train leaves at seven o'clock.
She has two brothers and a sister.
It is raining again.
Can you help me, please?
My father works in a small factory.
We were late because of the snow.
Tom doesn't want to go home.
How much does this book cost?
I don't know what to say.
He is the tallest boy in our class.
Open the window, please.
They have lived here for ten years.
The children are playing in the garden.
What time is it?
I forgot my umbrella on the bus.
The soup is too hot.
Mary can speak three languages.
Did you see the news today?
Nobody knows the answer.
This is the house where I was born.
I'm looking for a cheap hotel.
The doctor told him to stop smoking.
Let's meet in front of the library.
He opened the door and looked outside.
Why are you crying?
There is a cat under the table.
I have never been to Berlin.
She bought a new dress yesterday.
The meeting will be held tomorrow.
You should have told me the truth.
The water in this lake is very clear.
Do you like music?
I have to finish my homework.
The dog is sleeping on the sofa.
He asked me if I was hungry.
We need more time.
It was the best day of my life.
Could you speak more slowly?
The bridge was built two hundred years ago.
I think he is right.
Please write your name here.
The old man sat on a bench in the park.
Everyone laughed at his joke.
Is this seat taken?
I will call you when I arrive.
She is afraid of spiders.
The film was boring.
He lost his keys last night.
Winter is colder than autumn.
Don't touch that!
I've already eaten.
The teacher gave us a lot of work.
Who broke the window?
My grandmother lives in the country.
I wish I could fly.
The shop closes at six.
It doesn't matter.
You can't be serious.
They are waiting for the bus.
I'd rather stay at home tonight.
Tom gave Mary the letter.
What are you going to do this weekend?
He drives too fast.
The apples in the basket are red.
We arrived in the morning.
That is not my fault.
She smiled and said nothing.
How long have you been learning German?
The weather was fine, so we went for a walk.
I cannot sleep at night.
Everything is ready.
He is better at chess than I am.
The museum is closed on Mondays.
Turn off the light before you go to bed.
I have a headache.
The road is blocked by a fallen tree.
She sings beautifully.
Are you sure about that?
My brother wants to become a pilot.
The bread is fresh.
We should leave now.
I met an old friend on the street.
The sun rises in the east.
He paid the bill and left the restaurant.
You look tired.
It took me three hours to read the book.
Nothing happened.
Mary is wearing a blue hat.
The baby is hungry.
I didn't understand the question.
They got married last summer.
Wash your hands!
The price of oil is rising.
He has a good memory for names.
Our team won the game.
I'm proud of you.
The clock on the wall is wrong.
If it rains tomorrow, we will stay at home.
She was reading a letter when I came in.
""".split("\n")[1:-1]

ODD = (
    "",
    " ",
    "\t \n",
    "a",
    "  two  spaces  ",
    "no\u00a0break\u00a0space",
    "thin\u2009space, zero\u200bwidth, \ufeffmark",
    "line\nbreak\r\nand\ttab",
    "\x00\x01\x02 control \x7f",
    "I like 🍕 and 🙂.",
    "👩‍👩‍👧‍👦 family 👍🏽",
    "🇩🇪🇫🇷",
    "مرحبا بالعالم",
    "שלום עולם!",
    "\u202eright to left\u202c",
    "你好，世界。",
    "こんにちは",
    "สวัสดี",
    "नमस्ते",
    "Привет, мир!",
    "Ελληνικά",
    "Größe, Äpfel, Übel, weiß",
    "e\u0301 é n\u0303 ñ",
    "ﬁne ﬂow ＡＢＣ １２３",
    "½ ² ™ € £ ¥ §",
    "“quotes” ‘single’ «guillemets» „unten“",
    "em—dash en–dash … ellipsis",
    "</s> <pad> <unk> <s>",
    "a </s> b",
    "<unk>",
    "▁lower▁one eighth▁",
    "HELLO WORLD",
    "hElLo WoRlD",
    "1,234.56 + 7 = 1241.56",
    "http://www.example.com/?q=a&b=c#d",
    "name@example.org",
    "C++ & C# <b>html</b> &amp;",
    "!!!! ???? ....",
    "x" * 300,
    "ha " * 30,
    "日本語" * 50,
    "\ufffd",
    "\U0010ffff",
    ">> quoted mail",
    ">>",
    "<<",
    "a >>deu<< b",
    "word " * 2000,
)


def random_texts(count: int, seed: int) -> list[str]:
    """Texts of letters, spaces, marks and any other code point but surrogates."""
    draw = random.Random(seed)
    common = "abcdefghijklmnopqrstuvwxyzABCDEFäöüß ,.!?'\"-0123456789     "

    def char() -> str:
        if draw.random() < 0.85:
            return draw.choice(common)
        code = draw.choice((draw.randrange(0x20, 0x3000), draw.randrange(0x1F300, 0x1FAFF)))
        return chr(code)

    return ["".join(char() for _ in range(draw.randrange(60))) for _ in range(count)]
