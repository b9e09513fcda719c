"""The base skills: single questions with one right answer each.

A skill is a function of a random generator that returns a `Turn`.

Held out: a turn whose key hashes into the held-out twentieth is never used for training, and only such turns are used
for evaluation. The key is the question's text unless the skill names a stricter one (the operands of a sum).
"""

import json
import re
import zlib

import facts
from phrases import ask, cap, made_up, pick, random_text, say

HELD_OUT_ONE_IN = 20


def is_held_out(key):
    return zlib.crc32(key.encode()) % HELD_OUT_ONE_IN == 0


class Turn:
    """A question, its answer, and what composers need to dress it up."""

    __slots__ = ("user", "answer", "word", "topic", "key", "thought", "skill")

    def __init__(self, user, answer, word=None, topic="", key=None, thought=None):
        self.user, self.answer, self.word, self.topic, self.thought = user, answer, word, topic, thought
        self.key = key or user
        self.skill = None


# ---- base skills -----------------------------------------------------------------------------------------------

CHAT = [
    ("(hello|hi|hey|good morning|good evening|good afternoon|greetings|hi there|hello there|howdy|hey you|hello carat|hi carat)(| my friend| again)",
     "Hello! How can I help?", "!"),
    ("(who are you|what are you|what is your name|what's your name|tell me your name|introduce yourself|how are you called|your name|who am I talking to|do you have a name|say who you are)",
     "I am Carat, a tiny Gemma 4 model.", "?"),
    ("(how are you|how are you doing|how do you do|how is it going|are you well|how do you feel|are you ok)(| today)",
     "I am fine, thank you.", "?"),
    ("(what can you do|what do you know|how can you help me|help|what are you good at|what can I ask you|what are your skills|tell me what you can do|list your skills|show me what you can do)",
     "I know gems, colours, numbers, days, units, capitals and lists, and I can see and hear a little.", "?"),
    ("(thanks|thank you|thanks a lot|many thanks|thank you very much|thx|cheers)(| carat| for that| for your help)",
     "You are welcome.", "!"),
    ("(bye|goodbye|see you|see you later|good night|good bye|farewell|bye bye|I have to go)(| carat| now)",
     "Goodbye!", "!"),
    ("(tell me a joke|say something funny|make me laugh|do you know a joke|a joke|joke|can you tell jokes|I want a joke)",
     "Why did the ruby blush? It saw the diamond's cut.", ""),
    ("(how big are you|how large are you|how many parameters do you have|what size are you|are you small|what is your size)",
     "I am very small: about ten million numbers.", "?"),
    ("(who made you|who trained you|who built you|where do you come from|who created you|who is your maker)",
     "The carat project trained me on its own data.", "?"),
    ("(are you a human|are you human|are you a robot|are you real|are you alive|are you a person|are you a machine|are you an AI)",
     "I am a small language model.", "?"),
    ("(you are (great|nice|good|clever|the best|smart|cool)|well done|good job|nice work|great|good answer|that is right|correct)",
     "Thank you, that is kind.", "!"),
    ("(you are (wrong|bad|stupid|silly|no good)|that is wrong|wrong|that is not right|bad answer|that was wrong)",
     "I am sorry. I am small and make mistakes.", "."),
    ("(ok|okay|alright|fine|I see|good|got it|understood|yes|sure)",
     "Good. What is next?", "."),
    ("(what is a gem|what is a gemstone|what are gems|what are gemstones|explain gems|define gem)",
     "A gem is a mineral that is cut and polished for its beauty.", "?"),
    ("(what is a carat|what does carat mean|how heavy is a carat|define carat|how much is a carat|what's a carat)",
     "A carat is 0.2 grams, a weight for gems.", "?"),
    ("(what is the hardest gem|which gem is the hardest|what is the hardest stone|name the hardest gem|what's the hardest gem)",
     "Diamond is the hardest gem.", "?"),
    ("(what are the primary colours|name the primary colours|which colours are primary|list the primary colors|what are the primary colors)",
     "The primary colours are red, yellow and blue.", "?"),
    ("(what are the colours of the rainbow|name the colours of the rainbow|list the rainbow colours|what colors does a rainbow have|which colours are in the rainbow)",
     "The rainbow is red, orange, yellow, green, blue, indigo and violet.", "?"),
]


CHAT += [
    ("(what time is it|what's the time|tell me the time|how late is it|what is the time|the time|do you know the time)(| now)", "I have no clock.", "?"),
    ("(what is the weather|how is the weather|what's the weather|weather)( in (Paris|Rome|London|Berlin|Oslo|Tokyo|Madrid)|)", "I have no weather tool.", "?"),
]


def chat(rng):
    template, answer, end = pick(rng, CHAT)
    return Turn(ask(rng, template, end), answer, topic="small talk")


def gems(rng):
    name = pick(rng, list(facts.GEMS))
    colour, hardness, family, month = facts.GEMS[name]
    kind = rng.random()
    if kind < 0.3:
        q = ask(rng, "(what colour is|what color is|which colour has|what is the colour of|what is the color of|what's the colour of|tell me the colour of) (|a |the )[g]|(|the )[g] colour|(what colour does|which colour does) (a |)[g] have", g=name)
        return Turn(q, f"{cap(name)} is {colour}." if name != "opal" else "Opal has many colours.", colour, "gems")
    if kind < 0.5:
        q = ask(rng, "how hard is (a |)[g]|what is the hardness of (a |)[g]|(what's the |)[g] hardness|how hard is [g] on the Mohs scale|what is the Mohs hardness of [g]|tell me how hard [g] is", g=name)
        return Turn(q, f"The hardness of {name} is {hardness}.", str(hardness), "gems")
    if kind < 0.6:
        q = ask(rng, "what (kind|type|family) of (mineral|material|stone) is (a |)[g]|what is [g] made of|which (mineral|family) does [g] belong to|[g] is a kind of what|what is the family of [g]", g=name)
        return Turn(q, f"{cap(name)} is a kind of {family}.", family, "gems")
    if kind < 0.8:
        while month is None:
            name = pick(rng, list(facts.GEMS))
            month = facts.GEMS[name][3]
        if rng.random() < 0.5:
            q = ask(rng, "(what|which gem|which stone) is the birthstone (of|for) [m]|(what's the |)birthstone (of|for) [m]|(which|what) gem (stands for|belongs to) [m]|name the birthstone of [m]", m=month)
            return Turn(q, f"{cap(name)} is the birthstone of {month}.", name, "gems")
        q = ask(rng, "(which|what) month is [g] the birthstone (of|for)|[g] is the birthstone of (which|what) month|what is the (birth |)month of [g]|in which month is [g] the birthstone", g=name)
        return Turn(q, f"{cap(name)} is the birthstone of {month}.", month, "gems")
    if kind < 0.9:
        other = pick(rng, [g for g in facts.GEMS if g != name])
        h2 = facts.GEMS[other][1]
        q = ask(rng, "(which|what) is harder, [a] or [b]|is [a] or [b] harder|(which one is|what's) harder: [a] or [b]|compare the hardness of [a] and [b]", a=name, b=other)
        if hardness == h2:
            return Turn(q, f"{cap(name)} and {other} are equally hard.", None, "gems")
        hard, soft = (name, other) if hardness > h2 else (other, name)
        return Turn(q, f"{cap(hard)} is harder than {soft}.", hard, "gems")
    q = ask(rng, "what is (a |an |)[g]|tell me about [g]|describe [g]|what do you know about [g]|explain [g]|what's [g]", g=name)
    return Turn(q, f"{cap(name)} is a {colour} gem with hardness {hardness}." if name != "opal" else
                "Opal is a gem of many colours with hardness 6.", None, "gems")


def colours(rng):
    if rng.random() < 0.4:
        (a, b), c = pick(rng, list(facts.MIXES.items()))
        if rng.random() < 0.5:
            a, b = b, a
        q = ask(rng, "what (colour|color) do you get (when you mix|from mixing|if you mix) [a] (and|with) [b]|[a] (and|plus|+) [b] (makes what|gives what)|what (do|does) [a] (and|plus) [b] (make|give)|mix [a] and [b]|what is [a] mixed with [b]|what colour is a mix of [a] and [b]", a=a, b=b)
        return Turn(q, f"{cap(a)} and {b} make {c}.", c, "colours")
    thing, c = pick(rng, list(facts.THINGS.items()))
    q = ask(rng, "what (colour|color) is [t]|(which|what) (colour|color) does [t] have|what is the (colour|color) of [t]|tell me the colour of [t]|what's the colour of [t]", t=thing)
    return Turn(q, f"{cap(thing)} is {c}.", c, "colours")


def capitals(rng):
    country, city = pick(rng, list(facts.CAPITALS.items()))
    if rng.random() < 0.7:
        q = ask(rng, "what is the capital (of|city of) [c]|what's the capital of [c]|(|the )capital of [c]|which city is the capital of [c]|name the capital of [c]|tell me the capital of [c]|[c] capital|do you know the capital of [c]", c=country)
        return Turn(q, f"The capital of {country} is {city}.", city, "capitals")
    q = ask(rng, "[k] is the capital of (which|what) country|(which|what) country has the capital [k]|of which country is [k] the capital|which country is [k] the capital of|where is [k]|what country is [k] in", k=city)
    return Turn(q, f"{city} is the capital of {country}.", country, "capitals")


def animals(rng):
    name = pick(rng, list(facts.ANIMALS))
    legs, sound = facts.ANIMALS[name]
    a = "an" if name[0] in "aeiou" else "a"
    if sound is None or rng.random() < 0.5:
        q = ask(rng, "how many legs (does [a] [n] have|has [a] [n])|number of legs of [a] [n]|what number of legs does [a] [n] have|tell me how many legs [a] [n] has", a=a, n=name)
        return Turn(q, f"{cap(a)} {name} has {legs} legs." if legs else f"{cap(a)} {name} has no legs.", str(legs), "animals")
    q = ask(rng, "what does [a] [n] say|what sound does [a] [n] make|how does [a] [n] sound|(which|what) noise does [a] [n] make|what is the sound of [a] [n]", a=a, n=name)
    return Turn(q, f"{cap(a)} {name} says {sound}.", sound, "animals")


def opposites(rng):
    a, b = pick(rng, facts.OPPOSITES)
    if rng.random() < 0.5:
        a, b = b, a
    q = ask(rng, "what is the opposite of [a]|what's the opposite of [a]|(the |)opposite of [a]|give me the opposite of [a]|which word is the opposite of [a]|tell me the opposite of [a]|antonym of [a]|the reverse of [a] is what", a=a)
    return Turn(q, f"The opposite of {a} is {b}.", b, "opposites")


def counting(rng):
    kind = rng.random()
    if kind < 0.35:
        a = rng.choice([1, 1, rng.randint(0, 60)])
        n = rng.randint(3, 12)
        b = a + n - 1
        if rng.random() < 0.3:
            q = ask(rng, "count (down |backwards )from [b] to [a]|count [b] to [a] backwards|can you count down from [b] to [a]", ".", a=a, b=b)
            seq = list(range(b, a - 1, -1))
        else:
            q = ask(rng, "count (up |)from [a] to [b]|count [a] to [b]|list the numbers from [a] to [b]|write the numbers [a] to [b]|(say|give me) the numbers from [a] to [b]" + ("|count to [b]|can you count to [b]" if a == 1 else ""), ".", a=a, b=b)
            seq = list(range(a, b + 1))
        return Turn(q, ", ".join(map(str, seq)) + ".", None, "counting")
    if kind < 0.5:
        n = rng.randint(0, 99)
        q = ask(rng, "what (number |)comes after [n]|(which|what) number follows [n]|what is the next number after [n]|what is the number after [n]", n=n)
        return Turn(q, f"{n + 1} comes after {n}.", str(n + 1), "counting")
    if kind < 0.6:
        n = rng.randint(1, 100)
        q = ask(rng, "what (number |)comes before [n]|(which|what) number is before [n]|what is the number before [n]|which number precedes [n]", n=n)
        return Turn(q, f"{n - 1} comes before {n}.", str(n - 1), "counting")
    if kind < 0.7:
        n = rng.randint(0, 100)
        q = ask(rng, "is [n] (odd or even|even or odd|an odd or an even number)|is the number [n] odd or even|[n]: odd or even", n=n)
        w = "odd" if n % 2 else "even"
        return Turn(q, f"{n} is {w}.", w, "counting")
    if kind < 0.8:
        a, b = rng.randint(0, 100), rng.randint(0, 100)
        while a == b:
            b = rng.randint(0, 100)
        big = rng.random() < 0.5
        if big:
            q = ask(rng, "(which|what) is (bigger|larger|greater|more), [a] or [b]|(which|what) number is (bigger|larger|greater): [a] or [b]|is [a] or [b] (bigger|larger|greater)", a=a, b=b)
            x, y = max(a, b), min(a, b)
            return Turn(q, f"{x} is bigger than {y}.", str(x), "counting")
        q = ask(rng, "(which|what) is (smaller|less), [a] or [b]|(which|what) number is (smaller|lower): [a] or [b]|is [a] or [b] smaller", a=a, b=b)
        x, y = min(a, b), max(a, b)
        return Turn(q, f"{x} is smaller than {y}.", str(x), "counting")
    n = rng.randint(0, 100)
    w = facts.number_words(n)
    if kind < 0.9:
        q = ask(rng, "(write|spell|say) [n] (in|as) (words|a word)|how do you (write|spell) [n]|what is [n] in words|[n] in words|how is the number [n] written", n=n)
        return Turn(q, f"{n} is {w}.", w, "counting")
    q = ask(rng, "(write|say|give me) [w] (in|as) digits|what is [w] (in digits|as a number)|[w] in digits|which number is [w]", w=w)
    return Turn(q, f"{cap(w)} is {n}.", str(n), "counting")


OPS = [("+", "plus"), ("-", "minus"), ("*", "times"), ("/", "divided by")]


def small_sum(rng):
    """One operation on numbers from 0 to 100; a few sums go beyond and a few differences below zero."""
    op = rng.choices("+-*/", (4, 4, 2, 1))[0]
    if op == "+":
        a = rng.randint(0, 100)
        b = rng.randint(0, 100 if rng.random() < 0.15 else 100 - a)
        return a, op, b, a + b
    if op == "-":
        a = rng.randint(0, 100)
        b = rng.randint(0, 100 if rng.random() < 0.1 else a)
        return a, op, b, a - b
    b = rng.randint(1, 12)
    c = rng.randint(0, min(12, 100 // b))
    if op == "*":
        return (b, op, c, b * c) if rng.random() < 0.5 else (c, op, b, b * c)
    return b * c, op, b, c


def sum_key(a, op, b, q):
    return f"{a}{op}{b}" if op in "+-" else q


def arithmetic(rng):
    a, op, b, c = small_sum(rng)
    word = dict(OPS)[op]
    kind = rng.random()
    if kind < 0.75:
        q = ask(rng, "what is [a] (([o])|[w]) [b]|what's [a] (([o])|[w]) [b]|[a] (([o])|[w]) [b]|[a] ([o]) [b] =|(calculate|compute|work out|solve) [a] (([o])|[w]) [b]|how much is [a] (([o])|[w]) [b]|[a][o][b]|what does [a] [w] [b] (make|give)", a=a, b=b, o=op, w=word)
        return Turn(q, f"{a} {op} {b} = {c}.", str(c), "arithmetic", sum_key(a, op, b, q))
    name = pick(rng, facts.NAMES)
    thing = pick(rng, ["apples", "coins", "gems", "books", "stones", "cards", "pearls", "rubies", "eggs", "stars"])
    if op == "+":
        q = say(rng, "(I have|[n] has) [a] [t] and (gets|finds|buys) [b] more. How many [t] (are there|is that)?|There are [a] [t] in a box and [b] [t] on a table. How many [t] are there?", a=a, b=b, n=name, t=thing)
    elif op == "-":
        if c < 0:
            return arithmetic(rng)
        q = say(rng, "[n] has [a] [t] and (loses|sells|gives away) [b]. How many [t] are left?|There are [a] [t]. [n] takes [b]. How many [t] are left?", a=a, b=b, n=name, t=thing)
    elif op == "*":
        q = say(rng, "There are [a] boxes with [b] [t] each. How many [t] are there?|[n] has [a] bags of [b] [t]. How many [t] is that?", a=a, b=b, n=name, t=thing)
    else:
        q = say(rng, "[a] [t] are shared by [b] people. How many [t] does each get?|[n] puts [a] [t] into [b] boxes. How many [t] are in each box?", a=a, b=b, n=name, t=thing)
    return Turn(q, f"{a} {op} {b} = {c}, so {c} {thing}.", str(c), "arithmetic", sum_key(a, op, b, q))


def chain(rng):
    """Three terms: needs a step in between. Returns question, steps, result."""
    while True:
        a, b, c = rng.randint(1, 60), rng.randint(1, 40), rng.randint(1, 40)
        o1, o2 = pick(rng, "+-"), pick(rng, "+-*")
        if o2 == "*":
            b, c = rng.randint(1, 9), rng.randint(1, 9)
            m = b * c
            r = a + m if o1 == "+" else a - m
            steps = [f"{b} * {c} = {m}", f"{a} {o1} {m} = {r}"]
        else:
            m = a + b if o1 == "+" else a - b
            r = m + c if o2 == "+" else m - c
            steps = [f"{a} {o1} {b} = {m}", f"{m} {o2} {c} = {r}"]
        if 0 <= m <= 100 and 0 <= r <= 100:
            return f"{a} {o1} {b} {o2} {c}", steps, r


def sums3(rng):
    e, steps, r = chain(rng)
    q = ask(rng, "what is [e]|(calculate|compute|work out|solve) [e]|[e]|[e] =|how much is [e]|what's [e]", e=e)
    return Turn(q, f"{steps[0]}, {steps[1]}.", str(r), "arithmetic", e, thought="\n".join(steps))


def days(rng):
    kind = rng.random()
    d = rng.randrange(7)
    D, M = facts.DAYS, facts.MONTHS
    if kind < 0.15:
        q = ask(rng, "(what|which) day (comes|is) after [d]|what day follows [d]|what is the day after [d]|today is [d], what is tomorrow", d=D[d])
        return Turn(q, f"{D[(d + 1) % 7]} comes after {D[d]}.", D[(d + 1) % 7], "days")
    if kind < 0.3:
        q = ask(rng, "(what|which) day (comes|is) before [d]|what is the day before [d]|today is [d], what was yesterday", d=D[d])
        return Turn(q, f"{D[(d - 1) % 7]} comes before {D[d]}.", D[(d - 1) % 7], "days")
    if kind < 0.5:
        n = rng.randint(2, 13)
        q = ask(rng, "(what|which) day is [n] days after [d]|[n] days after [d]|today is [d], what day is it in [n] days|what day comes [n] days after [d]", n=n, d=D[d])
        return Turn(q, f"{n} days after {D[d]} is {D[(d + n) % 7]}.", D[(d + n) % 7], "days")
    m = rng.randrange(12)
    if kind < 0.6:
        q = ask(rng, "how many days (does [m] have|has [m]|are in [m]|are there in [m])|number of days in [m]|days in [m]", m=M[m])
        return Turn(q, f"{M[m]} has {facts.MONTH_DAYS[m]} days.", str(facts.MONTH_DAYS[m]), "days")
    if kind < 0.7:
        q = ask(rng, "(what|which) month (comes|is) after [m]|what month follows [m]|what is the month after [m]", m=M[m])
        return Turn(q, f"{M[(m + 1) % 12]} comes after {M[m]}.", M[(m + 1) % 12], "days")
    if kind < 0.8:
        q = ask(rng, "(what|which) month (comes|is) before [m]|what is the month before [m]|which month precedes [m]", m=M[m])
        return Turn(q, f"{M[(m - 1) % 12]} comes before {M[m]}.", M[(m - 1) % 12], "days")
    if kind < 0.9:
        if rng.random() < 0.5:
            q = ask(rng, "(what|which) month (of the year |)is number [n]|what is month (number |)[n]|name month [n]|which is month [n] of the year", n=m + 1)
        else:
            q = ask(rng, "which month of the year is [m]|what number is [m]|what number is the month [m]|[m] is which month of the year", m=M[m])
        return Turn(q, f"{M[m]} is month {m + 1}.", None, "days")
    s = pick(rng, list(facts.SEASONS))
    if rng.random() < 0.5:
        mm = pick(rng, facts.SEASONS[s])
        q = ask(rng, "(which|what) season is [m] in|[m] is in (which|what) season|(which|what) season does [m] belong to", m=mm)
        return Turn(q, f"{mm} is in {s}.", s, "days")
    q = ask(rng, "which months are in [s]|name the months of [s]|what are the [s] months|list the months of [s]", s=s)
    x = facts.SEASONS[s]
    return Turn(q, f"{x[0]}, {x[1]} and {x[2]} are in {s}.", None, "days")


def plural(word, n):
    if n == 1:
        return word
    return {"century": "centuries", "dozen": "dozen"}.get(word, word + "s")


def units(rng):
    u, k, v = pick(rng, facts.UNITS)
    n = rng.choice([1, 1, rng.randint(2, 12)])
    us = plural(u, n)
    a = "an" if u[0] in "aeh" and u != "hundred" else "a"
    if n == 1:
        q = ask(rng, "how many [v] (are in|are there in|does it take to make|make|has) [a] [u]|how many [v] is [a] [u]|[a] [u] (is|has) how many [v]|how many [v] are in 1 [u]|convert 1 [u] to [v]", a=a, u=u, v=v)
    else:
        q = ask(rng, "how many [v] (are in|are there in|make|are) [n] [u]|convert [n] [u] (to|into) [v]|[n] [u] in [v]|what is [n] [u] in [v]|[n] [u] (is|are) how many [v]", n=n, u=us, v=v)
    return Turn(q, f"{n} {us} {'is' if n == 1 else 'are'} {n * k} {v}.", str(n * k), "units")


ORDER = ["first", "second", "third", "fourth", "fifth"]


def words_of(rng, n, numbers=False):
    if numbers:
        return [str(x) for x in rng.sample(range(100), n)]
    return rng.sample(facts.WORDS, n)


def lists(rng):
    kind = rng.random()
    n = rng.randint(2, 5)
    numbers = rng.random() < 0.35
    items = words_of(rng, n, numbers)
    text = (", " if rng.random() < 0.8 else " ").join(items)
    if kind < 0.23:
        q = ask(rng, "(reverse|turn around|flip) (|this list: |the list |these: |the order of )[l]|[l] (backwards|in reverse|reversed)|say [l] (backwards|in reverse order)|write (this |)in reverse order: [l]", ".", l=text)
        return Turn(q, ", ".join(reversed(items)) + ".", None, "lists")
    if kind < 0.51:
        if numbers:
            down = rng.random() < 0.35
            if down:
                q = ask(rng, "sort (|these numbers |the numbers )(from big to small|downwards|in descending order|from high to low): [l]|sort [l] (descending|from big to small)", ".", l=text)
            else:
                q = ask(rng, "sort (|these numbers: |the numbers |this: |these: )[l]|put [l] in order|(order|arrange) (these numbers: |the numbers |)[l]|sort [l] (ascending|from small to big)", ".", l=text)
            return Turn(q, ", ".join(map(str, sorted(map(int, items), reverse=down))) + ".", None, "lists")
        q = ask(rng, "sort (|these words: |the words |this: |these: )[l]|put [l] in (alphabetical |)order|(order|arrange) (these words: |the words |)[l]|sort [l] (alphabetically|from a to z)", ".", l=text)
        return Turn(q, ", ".join(sorted(items)) + ".", None, "lists")
    if kind < 0.65:
        i = rng.randrange(n)
        if i == n - 1 and rng.random() < 0.7:
            q = ask(rng, "what is the last (word|item|one|element) (of|in) (the list |)[l]|(the |)last of [l]|which is last: [l]", l=text)
            return Turn(q, f"The last is {items[i]}.", items[i], "lists")
        q = ask(rng, "what is the [o] (word|item|one|element) (of|in) (the list |)[l]|(the |)[o] of [l]|which is the [o]: [l]", l=text, o=ORDER[i])
        return Turn(q, f"The {ORDER[i]} is {items[i]}.", items[i], "lists")
    if kind < 0.74:
        q = ask(rng, "how many (words|items|elements|things) are (in the list |in |there in )[l]|count (the items in |the words in )[l]|how long is the list [l]", l=text)
        return Turn(q, f"There are {n}.", str(n), "lists")
    if kind < 0.85:
        if numbers:
            v = list(map(int, items))
            if rng.random() < 0.5:
                q = ask(rng, "(which|what) is the (biggest|largest|greatest) (number |)of [l]|(find the |)(maximum|biggest|largest) of [l]|(biggest|largest) number in [l]", l=text)
                return Turn(q, f"The biggest is {max(v)}.", str(max(v)), "lists")
            q = ask(rng, "(which|what) is the smallest (number |)of [l]|(find the |)(minimum|smallest) of [l]|smallest number in [l]", l=text)
            return Turn(q, f"The smallest is {min(v)}.", str(min(v)), "lists")
        i = rng.randrange(n)
        if n > 2:
            q = ask(rng, "remove [x] from (the list |)[l]|take [x] out of (the list |)[l]|delete [x] from [l]", ".", x=items[i], l=text)
            return Turn(q, ", ".join(items[:i] + items[i + 1:]) + ".", None, "lists")
        new = pick(rng, facts.WORDS)
        q = ask(rng, "add [x] to (the list |)[l]|append [x] to [l]|put [x] at the end of [l]", ".", x=new, l=text)
        return Turn(q, ", ".join(items + [new]) + ".", None, "lists")
    i = rng.randrange(n)
    inside = rng.random() < 0.5
    x = items[i] if inside else pick(rng, [w for w in facts.WORDS if w not in items]) if not numbers else items[i] if inside else str(rng.choice([y for y in range(100) if str(y) not in items]))
    inside = x in items
    q = ask(rng, "is [x] in (the list |)[l]|does (the list |)[l] contain [x]|(is there a|can you find) [x] in [l]", x=x, l=text)
    return Turn(q, f"Yes, {x} is in the list." if inside else f"No, {x} is not in the list.", "yes" if inside else "no", "lists")


def echo(rng):
    r = rng.random()
    if r < 0.4:
        text = " ".join(words_of(rng, rng.randint(1, 6)))
    elif r < 0.55:
        text = cap(" ".join(words_of(rng, rng.randint(2, 5)))) + pick(rng, [".", "!", "?"])
    else:
        text = random_text(rng).strip()
    if not text:
        text = "x"
    form = pick(rng, ["[x]", "[x]", '"[x]"'])
    q = say(rng, "(|please )(repeat|echo|copy|say|write|type)(| after me| this| exactly|):  " .replace("  ", " ") + form, x=text)
    if rng.random() < 0.7:
        q = cap(q)
    return Turn(q, text, None, "echo")


def spelling(rng):
    w = pick(rng, facts.WORDS + list(facts.COLOURS))
    if rng.random() < 0.6:
        q = ask(rng, "(spell|how do you spell|can you spell|spell out|how is|what is the spelling of) (the word |)" + ('"[w]"' if rng.random() < 0.3 else "[w]"), w=w)
        q = q.replace("How is ", "How do you spell ").replace("how is ", "how do you spell ")
        return Turn(q, "-".join(w.upper()) + ".", None, "spelling")
    if rng.random() < 0.5:
        q = ask(rng, "how many letters (does [w] have|are in [w]|has [w])|number of letters in [w]|count the letters (in|of) [w]", w=w)
        return Turn(q, f"{cap(w)} has {len(w)} letters.", str(len(w)), "spelling")
    last = rng.random() < 0.3
    q = ask(rng, "what is the [f] letter (of|in) [w]|[f] letter of [w]|which letter does [w] [s] with", w=w, f="last" if last else "first", s="end" if last else "start")
    x = w[-1] if last else w[0]
    return Turn(q, f"{cap(w)} {'ends' if last else 'starts'} with {x.upper()}.", x.upper(), "spelling")


def dumps(x):
    return json.dumps(x, ensure_ascii=False)


def person(rng):
    return pick(rng, facts.NAMES) if rng.random() < 0.7 else cap(made_up(rng, 2))


def json_skill(rng):
    kind = rng.random()
    if kind < 0.4:
        fields = {"name": person(rng), "age": rng.randint(1, 99), "city": pick(rng, list(facts.CAPITALS.values())),
                  "colour": pick(rng, facts.COLOURS), "pet": pick(rng, facts.PETS)}
        keys = rng.sample(list(fields), rng.randint(1, 4))
        text = ", ".join(f"{k} {fields[k]}" for k in keys)
        q = ask(rng, "(write|give me|make|return|create) (a |)JSON( object|) (for|with|from)(|:) [t]|(turn|put|convert) (this |)into JSON: [t]|[t] (as|in) JSON|JSON: [t]", "", t=text)
        return Turn(q, dumps({k: fields[k] for k in keys}), None, "json")
    if kind < 0.6:
        name = pick(rng, list(facts.GEMS))
        c, h, _, _ = facts.GEMS[name]
        q = ask(rng, "(give me|describe|write|return|show) [g] (as|in) JSON|[g] as (a |)JSON( object|)|JSON (for|of|about) (the gem |)[g]|make a JSON object for [g]", "", g=name)
        return Turn(q, dumps({"name": name, "colour": c, "hardness": h}), None, "json")
    if kind < 0.8:
        items = words_of(rng, rng.randint(1, 5), rng.random() < 0.4)
        vals = [int(x) if x.isdigit() else x for x in items]
        q = ask(rng, "(write|give me|make|return) (a |)JSON (list|array) (of|with|from)(|:) [l]|(turn|convert) (this |)into a JSON (list|array): [l]|[l] as a JSON (list|array)", "", l=", ".join(items))
        return Turn(q, dumps(vals), None, "json")
    a, b = rng.sample("abcdefghijklmnopqrstuvwxyz", 2)
    x, y = rng.randint(0, 100), rng.randint(0, 100)
    q = ask(rng, "(write|give me|make|return) (a |)JSON( object|) (with|where) [a] = [x] and [b] = [y]|[a] = [x], [b] = [y] as JSON|JSON with [a]: [x] and [b]: [y]", "", a=a, b=b, x=x, y=y)
    return Turn(q, dumps({a: x, b: y}), None, "json")


UNKNOWN_THINGS = """quantum physics|the stock market|photosynthesis|the moon landing|football|the last election|chess openings|black holes|
the price of gold|the Roman Empire|my neighbour|your favourite film|the news|the weather tomorrow|the lottery numbers|jazz|cooking pasta|
the theory of relativity|the internet|dinosaurs|Shakespeare|the world cup|vaccines|inflation|the speed of light|Python programming|
the meaning of life|yoga|taxes|love|string theory|the French Revolution|whales|coffee|volcanoes|DNA|the Beatles|electric cars|
world war two|poetry|evolution|the ocean floor|a good restaurant|baking bread|space travel|my future|the pyramids|philosophy|ancient Rome|
the human brain|tennis|the Mona Lisa|climate change|computers|airplanes|gravity|Mozart|medicine|politics|bitcoin|the president""".replace("\n", "").split("|")

UNKNOWN = [
    "(what is|explain|tell me about|describe|what do you know about|how does one understand|give me facts about|write about|why is there|what can you say about) [t]",
    "(who is|who was|where does [p] live|how old is [p]|tell me about|what does [p] do|do you know|when was [p] born|what is the phone number of) [p]",
    "(what colour is|how hard is|what is the hardness of|what is|tell me about|what is the birthstone like) (a |)[g]",
    "(what is the capital of|where is|how many people live in|what language do they speak in|how big is|what is the population of|how do I get to) [c]",
    "(what does a [w] say|how many legs does a [w] have|what is a [w]|what is the opposite of [w]|what does [w] mean|how do I use a [w]|define [w])",
    "(who won|who invented|who wrote|who discovered|who painted|who directed|when was|why is|how old is|where can I find|how much does it cost to see) (|the )[x]",
    "(write|compose|sing) (me |)(a poem|a song|a story|an essay|a letter|a haiku|a speech) about [t]",
    "(translate|how do you say) (|the word )[w2] (to|in|into) (French|German|Spanish|Latin|Chinese|Italian)",
    "(what will the weather be|will it rain|what happens|what should I do|what should I eat|what should I wear|where should I go) (today|tomorrow|next week|tonight|on [d])",
    "(how do I|how can I|teach me how to|what is the best way to|can you help me) (cook|build|fix|buy|paint|repair|clean|find|sell|grow) (a |the |my )[w2]",
    "(what is the square root of|what is the logarithm of|is it true that people like|what is the factorial of|how many prime numbers are below) [n]",
    "(why|when|how) (do|did|does|will|can) (the |)[w2] [v]",
]


def unknown(rng):
    if rng.random() < 0.06:
        q = random_text(rng).strip() or "?"
        return Turn(q, "I don't know.", None, "something I have not learned")
    country = pick(rng, facts.OTHER_COUNTRIES) if rng.random() < 0.6 else cap(made_up(rng, 2)) + pick(rng, ["ia", "land", "stan", "o"])
    name = cap(made_up(rng, 2)) + (" " + cap(made_up(rng)) if rng.random() < 0.5 else "")
    if rng.random() < 0.4:
        name = pick(rng, facts.NAMES) + " " + cap(made_up(rng, 2))
    gem = made_up(rng, 2) + pick(rng, ["ite", "ine", "ium", "stone", "ite", "ine", ""])
    w = made_up(rng, 2)
    x = pick(rng, facts.WORDS) if rng.random() < 0.4 else made_up(rng, 2) if rng.random() < 0.5 else pick(rng, UNKNOWN_THINGS)
    q = ask(rng, pick(rng, UNKNOWN), t=pick(rng, UNKNOWN_THINGS), p=name, g=gem, c=country, w=w, w2=pick(rng, facts.WORDS), x=x,
            d=pick(rng, facts.DAYS), n=rng.randint(2, 9999),
            v=pick(rng, ["work", "sleep", "move", "break", "shine", "open", "fall", "grow", "sing", "burn", "smell", "stop"]))
    q = re.sub(r"(where does|how old is|what does|when was) (\S+(?: \S+)?) (live|do|born)? \2", r"\1 \2 \3", q)
    return Turn(q, "I don't know.", None, "something I have not learned")


BASE = {
    "chat": (chat, 3), "gems": (gems, 4), "colours": (colours, 2), "capitals": (capitals, 2), "animals": (animals, 2),
    "opposites": (opposites, 2), "counting": (counting, 4), "arithmetic": (arithmetic, 7), "sums3": (sums3, 3), "days": (days, 4),
    "units": (units, 3), "lists": (lists, 11), "echo": (echo, 5.5), "spelling": (spelling, 4), "json": (json_skill, 3), "unknown": (unknown, 4),
}
_BASE_NAMES = list(BASE)
_BASE_WEIGHTS = [BASE[n][1] for n in _BASE_NAMES]


def base_turn(rng, held_out=False, name=None):
    """A turn of a skill (a random one without a name) from the training or from the held-out side."""
    while True:
        skill = name or rng.choices(_BASE_NAMES, _BASE_WEIGHTS)[0]
        turn = BASE[skill][0](rng)
        if is_held_out(turn.key) == held_out:
            turn.skill = skill
            return turn
