"""The conversations that the demo model is trained on, composed of the base skills.

Several turns in a row, turns that look back at earlier ones, system prompts that change the answer, thinking, tools.
Everything is a function of the random generator; what is held out is decided as in skills.py.
"""

import facts
from phrases import ask, cap, made_up, pick, say
from skills import ORDER, OPS, Turn, base_turn, chain, dumps, is_held_out, person, small_sum, words_of


# ---- system prompts --------------------------------------------------------------------------------------------

def short_form(turn):
    return turn.word


# Rewriting every word and answering without the sentence take the most practice.
STYLES = {"capitals": 3, "short": 2.5, "lower": 1.2, "pirate": 0.8, "start": 1, "end": 1, "name": 1, "json": 1, "twice": 1.2, "fixed": 0.8}


def style(rng, turn):
    """A system prompt and what the turn's answer becomes under it, or None if they do not fit."""
    kind = rng.choices(list(STYLES), list(STYLES.values()))[0]
    a = turn.answer
    if kind == "capitals":
        s = say(rng, "(answer|reply|write|speak|respond) (only |)in (capital letters|capitals|upper case|all caps)(|.)|use (only |)capital letters(|.)")
        return "capitals", cap(s), a.upper()
    if kind == "lower":
        s = say(rng, "(answer|reply|write|speak|respond) (only |)in (small letters|lower case|lowercase)(|.)|use (only |)small letters(|.)")
        return "lower", cap(s), a.lower()
    if kind == "pirate":
        s = say(rng, "(talk|speak|answer|reply|write) like a pirate(|.)|you are a pirate(|.)|(answer|reply) in pirate style(|.)|be a pirate(|.)")
        return "pirate", cap(s), f"Arr! {a} Yo ho!"
    if kind == "short":
        # A sum of several steps without its steps is more than these few layers can do at once.
        if not turn.word or turn.skill == "sums3":
            return None
        s = say(rng, "(answer|reply|respond) (only |)(with|in) one word(|.)|(answer|reply) as briefly as you can(|.)|use one word(| only)(|.)|give (only |)the shortest answer(|.)|one word answers only(|.)")
        return "short", cap(s), turn.word
    if kind in ("start", "end"):
        w = cap(pick(rng, facts.WORDS)) if rng.random() < 0.6 else cap(made_up(rng))
        if kind == "start":
            s = say(rng, "(always |)(start|begin) (every answer|each answer|your answers|your reply|all answers) with (the word |)" + pick(rng, ['"[w]"', "[w]"]) + "(|.)", w=w)
            return "start", cap(s), f"{w} {a}"
        s = say(rng, "(always |)(end|finish) (every answer|each answer|your answers|your reply|all answers) with (the word |)" + pick(rng, ['"[w]"', "[w]"]) + "(|.)", w=w)
        return "end", cap(s), f"{a} {w}"
    if kind == "name":
        n = person(rng)
        s = say(rng, "(call|address) the user (as |)[n](|.)|the (user's name|name of the user) is [n], (use it|say it)(|.)|always say the user's name, [n](|.)", n=n)
        return "name", cap(s), f"{n}: {a}"
    if kind == "json":
        s = say(rng, "(answer|reply|respond) in JSON with the key " + pick(rng, ['"answer"', "answer"]) + "(|.)|(always |)return JSON with one key, answer(|.)|use JSON: the key is answer(|.)")
        return "json", cap(s), dumps({"answer": a})
    if kind == "twice":
        s = say(rng, "(say|write|repeat|give) (everything|every answer|each answer|all answers) twice(|.)|(answer|reply) twice(|.)")
        return "twice", cap(s), f"{a} {a}"
    w = cap(pick(rng, ["no comment", "beep", "moo", "hmm", "later", "ask me tomorrow", "I am asleep", "yes", "no", "never", pick(rng, facts.WORDS)]))
    s = say(rng, "(always|only) (answer|reply|say|respond) (with |)" + '"[w]"' + "(|.)|whatever the user asks, (say|answer|reply) " + '"[w]"' + "(|.)", w=w)
    return "fixed", cap(s), w


PLAIN_SYSTEM = ["You are a helpful assistant.", "You are Carat.", "Be helpful.", "You are a small model. Answer briefly.",
                "Answer the user's questions.", "You are a friendly assistant.", "Be brief.", "Help the user."]


def named_system(rng):
    n = person(rng)
    s = say(rng, "your name is [n](|.)|you are [n](|.)|you are called [n](|.)|you are [n], a (helpful |friendly |)assistant(|.)", n=n)
    q = ask(rng, "who are you|what is your name|what's your name|tell me your name|how are you called|introduce yourself|what are you called")
    return cap(s), Turn(q, f"I am {n}.", n, "names", key=s + q)


def system_item(rng, held_out=False):
    """(kind, system text, turn with the styled answer)"""
    while True:
        if rng.random() < 0.12:
            s, t = named_system(rng)
            if is_held_out(t.key) == held_out:
                return "persona", s, t
            continue
        turn = base_turn(rng, held_out)
        made = style(rng, turn)
        if made is None or (made[0] in ("capitals", "lower", "json", "twice") and turn.skill in ("echo", "json", "unknown") and rng.random() < 0.7):
            continue
        kind, s, a = made
        t = Turn(turn.user, a, turn.word, turn.topic, turn.key)
        t.skill = turn.skill
        return kind, s, t


# ---- conversations ---------------------------------------------------------------------------------------------

def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def memory_facts(rng):
    """statement, acknowledgement, question, answer, answer if unknown"""
    kind = rng.randrange(7)
    if kind == 0:
        n = person(rng)
        return ("name", ask(rng, "my name is [n]|I am [n]|I'm [n]|call me [n]|hi, I am [n]|hello, my name is [n]|this is [n]", ".", n=n),
                f"Nice to meet you, {n}.", ask(rng, "what is my name|what's my name|who am I|do you remember my name|tell me my name|how am I called"),
                f"Your name is {n}.")
    if kind == 1:
        c = pick(rng, facts.COLOURS)
        return ("colour", ask(rng, "my favourite (colour|color) is [c]|I like [c] best|the colour I like most is [c]|I love the colour [c]", ".", c=c),
                f"I will remember: your favourite colour is {c}.",
                ask(rng, "what is my favourite (colour|color)|which colour do I like (best|most)|what colour do I like|what's my favourite colour"),
                f"Your favourite colour is {c}.")
    if kind == 2:
        p, n = pick(rng, facts.PETS), person(rng)
        return ("pet", ask(rng, "my [p] is called [n]|I have a [p] (called|named) [n]|my [p]'s name is [n]|I own a [p] named [n]", ".", p=p, n=n),
                f"I will remember: your {p} is called {n}.",
                ask(rng, "what is my [p] called|what is the name of my [p]|what's my [p]'s name|how is my [p] called", p=p),
                f"Your {p} is called {n}.")
    if kind == 3:
        a = rng.randint(4, 99)
        return ("age", ask(rng, "I am [a] years old|I'm [a] (years old|)|my age is [a]|I turned [a]", ".", a=a), f"I will remember: you are {a} years old.",
                ask(rng, "how old am I|what is my age|what's my age|do you know how old I am"), f"You are {a} years old.")
    if kind == 4:
        k = pick(rng, list(facts.CAPITALS.values()))
        return ("city", ask(rng, "I live in [k]|my home is (in |)[k]|I am from [k]|my city is [k]", ".", k=k), f"I will remember: you live in {k}.",
                ask(rng, "where do I live|which city do I live in|what city am I from|where am I from|where is my home"), f"You live in {k}.")
    if kind == 5:
        g = pick(rng, list(facts.GEMS))
        return ("gem", ask(rng, "my favourite (gem|stone) is [g]|the gem I like (best|most) is [g]|I like [g] more than any other gem", ".", g=g),
                f"I will remember: your favourite gem is {g}.",
                ask(rng, "what is my favourite (gem|stone)|which gem do I like (best|most)|what's my favourite gem"), f"Your favourite gem is {g}.")
    n = rng.randint(0, 999)
    return ("number", ask(rng, "(remember |)(the number|my number is|my lucky number is) [n]|remember [n]", ".", n=n), f"I will remember: the number is {n}.",
            ask(rng, "what is (the|my) (lucky |)number|which number did I (say|tell you|give you)|what number did I say|what's my number"), f"The number is {n}.")


NOT_TOLD = {"name": "You have not told me your name.", "colour": "You have not told me your favourite colour.",
            "age": "You have not told me your age.", "city": "You have not told me where you live.",
            "gem": "You have not told me your favourite gem.", "number": "You have not told me a number.",
            "pet": "You have not told me about a pet."}


def memory_dialogue(rng, held_out=False, fillers=None):
    """Facts told, other questions, then a question about the facts."""
    told, messages = {}, []
    facts_told = []
    if rng.random() < 0.05:
        f = memory_facts(rng)
        return [user(f[3]), assistant(NOT_TOLD[f[0]])], f[3]
    for _ in range(rng.choice([1, 1, 1, 2, 2, 3])):
        f = memory_facts(rng)
        if f[0] not in told:
            told[f[0]] = f
            facts_told.append(f)
    for f in facts_told:
        messages += [user(f[1]), assistant(f[2])]
        for _ in range(rng.choice([0, 0, 1, 2]) if fillers is None else fillers):
            t = base_turn(rng)
            messages += [user(t.user), assistant(t.answer)]
    rng.shuffle(facts_told)
    if rng.random() < 0.12:
        f = memory_facts(rng)
        if f[0] not in told:
            messages += [user(f[3]), assistant(NOT_TOLD[f[0]])]
            return messages, f[0] + f[3]
    f = facts_told[0]
    messages += [user(f[3]), assistant(f[4])]
    return messages, messages[0]["content"] + f[3]


def running_sum(rng):
    while True:
        a, op, b, c = small_sum(rng)
        if 0 <= c <= 100:
            break
    q = ask(rng, "what is [a] [o] [b]|[a] [o] [b]|how much is [a] [o] [b]", a=a, b=b, o=op)
    messages = [user(q), assistant(f"{a} {op} {b} = {c}.")]
    key = f"{a}{op}{b}"
    for _ in range(rng.randint(1, 4)):
        if rng.random() < 0.5 and c < 100:
            n = rng.randint(0, 100 - c)
            q = ask(rng, "add [n]|plus [n]|(and |now )(add|plus) [n]|add [n] to that|and [n] more", ".", n=n)
            messages += [user(q), assistant(f"{c} + {n} = {c + n}.")]
            c += n
        else:
            n = rng.randint(0, c)
            q = ask(rng, "(subtract|minus|take away) [n]|(and |now )(subtract|minus) [n]|take [n] from that|and [n] less", ".", n=n)
            messages += [user(q), assistant(f"{c} - {n} = {c - n}.")]
            c -= n
        key += q
    return messages, key


def ellipsis(rng):
    """A question, then the same about something else."""
    kind = rng.randrange(4)
    follow = lambda x: ask(rng, "(and|what about|how about|and what about|now) [x]|and (for |of |)[x]".replace("(for |of |)", ""), x=x)
    messages = []
    n = rng.randint(2, 3)
    if kind == 0:
        names = rng.sample([g for g in facts.GEMS if g != "opal"], n)
        for i, g in enumerate(names):
            q = ask(rng, "what colour is [g]|what is the colour of [g]", g=g) if i == 0 else follow(g)
            messages += [user(q), assistant(f"{cap(g)} is {facts.GEMS[g][0]}.")]
    elif kind == 1:
        names = rng.sample(list(facts.CAPITALS), n)
        for i, c in enumerate(names):
            q = ask(rng, "what is the capital of [c]|capital of [c]", c=c) if i == 0 else follow(c)
            messages += [user(q), assistant(f"The capital of {c} is {facts.CAPITALS[c]}.")]
    elif kind == 2:
        names = rng.sample(list(facts.GEMS), n)
        for i, g in enumerate(names):
            q = ask(rng, "how hard is [g]|what is the hardness of [g]", g=g) if i == 0 else follow(g)
            messages += [user(q), assistant(f"The hardness of {g} is {facts.GEMS[g][1]}.")]
    else:
        pairs = rng.sample(facts.OPPOSITES, n)
        for i, (a, b) in enumerate(pairs):
            q = ask(rng, "what is the opposite of [a]|opposite of [a]", a=a) if i == 0 else follow(a)
            messages += [user(q), assistant(f"The opposite of {a} is {b}.")]
    return messages, "".join(m["content"] for m in messages if m["role"] == "user")


def look_back(rng):
    """Turns, then a question about what was said."""
    messages = []
    for _ in range(rng.randint(1, 3)):
        t = base_turn(rng, name=rng.choice(["gems", "colours", "capitals", "arithmetic", "opposites", "days", "animals"]))
        messages += [user(t.user), assistant(t.answer)]
    kind = rng.randrange(3)
    if kind == 0:
        q = ask(rng, "(repeat|say) (that|your last answer|your answer)( again|)|what did you (just |)say|say it again|once more")
        a = messages[-1]["content"]
    elif kind == 1:
        q = ask(rng, "what did I (just |)(ask|say)|what was my last question|repeat my (last |)question|what did I ask you last")
        a = "You asked: " + messages[-2]["content"]
    else:
        q = ask(rng, "what was my first question|what did I ask first|what was the first thing I asked|repeat my first question")
        a = "You asked: " + messages[0]["content"]
    messages += [user(q), assistant(a)]
    return messages, "".join(m["content"] for m in messages if m["role"] == "user")


def multi_turn(rng, held_out=False):
    """(messages, key): the last answer depends on earlier turns."""
    while True:
        r = rng.random()
        if r < 0.5:
            m, key = memory_dialogue(rng)
        elif r < 0.7:
            m, key = running_sum(rng)
        elif r < 0.85:
            m, key = ellipsis(rng)
        else:
            m, key = look_back(rng)
        if is_held_out(key) == held_out:
            return m


# ---- thinking --------------------------------------------------------------------------------------------------

def thinking_turn(rng, held_out=False):
    """A turn with a thought: real steps where the task has some, a word about the topic elsewhere."""
    r = rng.random()
    while True:
        if r < 0.5:
            e, steps, c = chain(rng)
            q = ask(rng, "what is [e]|(calculate|compute|work out|solve) [e]|[e]|[e] =|how much is [e]|what's [e]", e=e)
            t = Turn(q, f"{e} = {c}.", str(c), "arithmetic", e, "\n".join(steps))
        elif r < 0.65:
            n = rng.randint(3, 5)
            numbers = rng.random() < 0.5
            items = words_of(rng, n, numbers)
            order = sorted(items, key=int) if numbers else sorted(items)
            q = ask(rng, "sort [l]|sort (these: |this list: )[l]|put [l] in order", ".", l=", ".join(items))
            t = Turn(q, ", ".join(order) + ".", None, "lists", q, "\n".join(f"{ORDER[i]}: {x}" for i, x in enumerate(order)))
        elif r < 0.8:
            name = pick(rng, facts.NAMES)
            a, b = rng.randint(1, 50), rng.randint(1, 50)
            c = rng.randint(0, a + b)
            thing = pick(rng, ["apples", "coins", "gems", "books", "stones", "cards", "pearls"])
            q = say(rng, "[n] has [a] [t], (gets|finds) [b] more and (loses|gives away) [c]. How many [t] are left?", n=name, a=a, b=b, c=c, t=thing)
            t = Turn(q, f"{a + b - c} {thing} are left.", str(a + b - c), "arithmetic", f"{a}+{b}-{c}", f"{a} + {b} = {a + b}\n{a + b} - {c} = {a + b - c}")
        else:
            t = base_turn(rng, held_out)
            t.thought = f"This is about {t.topic}."
            if t.skill == "sums3":
                continue
        if is_held_out(t.key) == held_out:
            return t


# ---- tools -----------------------------------------------------------------------------------------------------

CITIES = list(facts.CAPITALS.values())


def tool(name, description, props=None, required=None):
    f = {"name": name, "description": description, "parameters": {"type": "object", "properties": props or {}}}
    if required:
        f["parameters"]["required"] = required
    return {"type": "function", "function": f}


def calculator(rng):
    name = "calculator" if rng.random() < 0.7 else pick(rng, ["calculate", "calc", "compute", "math"])
    arg = "expression" if rng.random() < 0.8 else pick(rng, ["expr", "input", "formula"])
    d = pick(rng, ["Calculates an arithmetic expression.", "Evaluate an expression", "A calculator", "Does arithmetic.",
                   "Computes the value of an expression.", "Evaluates arithmetic, for example 2 + 3 * 4.", ""])
    p = {"type": "string"}
    if rng.random() < 0.6:
        p["description"] = pick(rng, ["The expression", "What to calculate", "An arithmetic expression", "For example 12 * 7"])
    return tool(name, d, {arg: p}, [arg] if rng.random() < 0.8 else None), name, arg


def clock(rng):
    name = "clock" if rng.random() < 0.7 else pick(rng, ["get_time", "time", "current_time", "now"])
    d = pick(rng, ["Tells the time.", "The current time", "Returns the time of day.", "A clock", "Gives the current time in a city.", ""])
    arg = None
    props = {}
    if rng.random() < 0.5:
        arg = "city" if rng.random() < 0.7 else pick(rng, ["place", "timezone", "location"])
        props[arg] = {"type": "string"}
        if rng.random() < 0.5:
            props[arg]["description"] = pick(rng, ["The city", "Where", "City name"])
    return tool(name, d, props), name, arg


def weather(rng):
    name = "get_weather" if rng.random() < 0.6 else pick(rng, ["weather", "current_weather", "forecast"])
    arg = "city" if rng.random() < 0.8 else "location"
    d = pick(rng, ["Get the weather", "The weather in a city", "Current weather.", "Tells the weather."])
    p = {"type": "string"}
    if rng.random() < 0.5:
        p["description"] = pick(rng, ["The city", "City name"])
    return tool(name, d, {arg: p}, [arg] if rng.random() < 0.7 else None), name, arg


def big_expression(rng):
    op = pick(rng, "+-*/*+")
    if op == "*":
        a, b = rng.randint(2, 999), rng.randint(2, 999)
        return a, op, b, a * b
    if op == "/":
        b, c = rng.randint(2, 99), rng.randint(2, 999)
        return b * c, op, b, c
    a, b = rng.randint(1, 9999), rng.randint(1, 9999)
    return a, op, b, a + b if op == "+" else a - b


def tool_item(rng, held_out=False):
    """(messages, tools, index of the assistant's first own message). All its messages are to be learned."""
    while True:
        m, tools, key, start = _tool_item(rng, held_out)
        if is_held_out(key) == held_out:
            return m, tools, start


def _tool_item(rng, held_out):
    calc, calc_name, calc_arg = calculator(rng)
    clk, clk_name, clk_arg = clock(rng)
    wea, wea_name, wea_arg = weather(rng)
    kind = rng.choices(["calc", "clock", "weather", "none", "missing"], (5, 3, 1.5, 2, 1))[0]
    tools = [t for t, need in ((calc, kind == "calc"), (clk, kind == "clock"), (wea, kind == "weather")) if need]
    if kind == "none":
        tools = [pick(rng, [calc, clk, wea])]
    extra = [t for t in (calc, clk, wea) if t not in tools]
    if kind == "missing":
        what = pick(rng, ["time", "weather"])
        tools = [calc] + ([wea] if what == "time" and rng.random() < 0.4 else [clk] if what == "weather" and rng.random() < 0.4 else [])
    elif rng.random() < 0.6:
        tools.append(pick(rng, extra))
    rng.shuffle(tools)
    city = pick(rng, CITIES)
    start = []
    if rng.random() < 0.15:
        t = base_turn(rng, name=pick(rng, ["gems", "capitals", "colours", "chat"]))
        start = [user(t.user), assistant(t.answer)]
    if kind == "none":
        t = base_turn(rng, held_out, name=pick(rng, ["gems", "capitals", "colours", "chat", "opposites", "days", "lists", "unknown"]))
        return start + [user(t.user), assistant(t.answer)], tools, t.key, len(start)
    if kind == "missing":
        if what == "time":
            q = ask(rng, "what time is it( in [k]|)|what's the time( in [k]|)|tell me the time|how late is it", k=city)
            return start + [user(q), assistant("I have no clock.")], tools, q, len(start)
        q = ask(rng, "what is the weather (in|like in) [k]|how is the weather in [k]", k=city)
        return start + [user(q), assistant("I have no weather tool.")], tools, q, len(start)
    fail = rng.random() < 0.04
    if kind == "calc":
        a, op, b, c = big_expression(rng) if rng.random() < 0.8 else small_sum(rng)
        w = dict(OPS)[op]
        q = ask(rng, "what is [a] (([o])|[w]) [b]|what's [a] (([o])|[w]) [b]|[a] (([o])|[w]) [b]|(calculate|compute|work out) [a] (([o])|[w]) [b]|how much is [a] (([o])|[w]) [b]|[a][o][b]", a=a, b=b, o=op, w=w)
        args, result = {calc_arg: f"{a} {op} {b}"}, str(c)
        name, final, key = calc_name, f"{a} {op} {b} = {c}.", f"{a}{op}{b}"
        thought, after = f"I need the {calc_name} tool for {a} {op} {b}.", f"The result is {c}."
    elif kind == "clock":
        h, mi = rng.randint(0, 23), rng.randint(0, 59)
        result = f"{h:02d}:{mi:02d}" if rng.random() < 0.7 else f"{pick(rng, facts.DAYS)} {h}:{mi:02d}"
        in_city = rng.random() < 0.5
        if in_city:
            q = ask(rng, "what time is it in [k]|what's the time in [k]|tell me the time in [k]|how late is it in [k]|what is the (current |)time in [k]", k=city)
            args = {clk_arg: city} if clk_arg else {}
        else:
            q = ask(rng, "what time is it( now|)|what's the time|tell me the time|how late is it|what is the (current |)time|do you know what time it is|the time")
            args = {}
        name, final, key = clk_name, f"It is {result} in {city}." if in_city else f"It is {result}.", q + result
        thought, after = f"I need the {clk_name} tool.", f"The time is {result}."
    else:
        result = f"{pick(rng, ['sunny', 'rain', 'cloudy', 'snow', 'windy', 'fog', 'storm', 'clear'])}, {rng.randint(-9, 38)} degrees"
        q = ask(rng, "what is the weather (in|like in) [k]|how is the weather in [k]|weather in [k]|tell me the weather in [k]|what's the weather in [k]", k=city)
        args = {wea_arg: city}
        name, final, key = wea_name, f"The weather in {city}: {result}.", q + result
        thought, after = f"I need the {wea_name} tool.", f"The weather is {result}."
    if fail:
        result = pick(rng, ["error: " + made_up(rng), "error: not available", "error: bad input"])
        final, after = "The tool failed: " + result[7:] + ".", "The tool failed."
    content = result
    if rng.random() < 0.1:
        content = dumps({"result": result})
    elif kind != "clock" and rng.random() < 0.05 and result.lstrip("-").isdigit():
        content = int(result)
    call_id = "call_1"
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": args}}
    m = start + [user(q), {"role": "assistant", "tool_calls": [call], "content": "", "thought": thought},
                 {"role": "tool", "tool_call_id": call_id, "name": name, "content": content},
                 {"role": "assistant", "content": final, "thought": after}]
    return m, tools, key, len(start)


def with_thoughts(messages, thinking):
    """Turns the `thought` notes into reasoning, or drops them."""
    out = []
    for m in messages:
        m = dict(m)
        thought = m.pop("thought", None)
        if thinking and thought:
            m["reasoning"] = thought
        out.append(m)
    return out


# ---- training conversations ------------------------------------------------------------------------------------

def conversation(rng, max_turns=3, system_share=0.19):
    """A random training conversation: (messages, tools, thinking, indices to learn)."""
    if rng.random() < system_share:
        kind, s, t = system_item(rng)
        messages = [{"role": "system", "content": s}, user(t.user), assistant(t.answer)]
        return messages, None, False, [2]
    r = rng.random()
    if r < 0.44:
        n = rng.choices(range(1, max_turns + 1), [1.0 / k for k in range(1, max_turns + 1)])[0]
        messages = []
        if rng.random() < 0.06:
            messages.append({"role": "system", "content": pick(rng, PLAIN_SYSTEM)})
        for _ in range(n):
            t = base_turn(rng)
            messages += [user(t.user), assistant(t.answer)]
        return messages, None, False, [i for i, m in enumerate(messages) if m["role"] == "assistant"]
    if r < 0.61:
        messages = multi_turn(rng)
        return messages, None, False, [i for i, m in enumerate(messages) if m["role"] == "assistant"]
    if r < 0.82:
        messages = []
        if rng.random() < 0.1:
            messages.append({"role": "system", "content": pick(rng, PLAIN_SYSTEM)})
        if rng.random() < 0.25:
            t = base_turn(rng)
            messages += [user(t.user), assistant(t.answer)]
        t = thinking_turn(rng)
        messages += [user(t.user), {"role": "assistant", "content": t.answer, "reasoning": t.thought}]
        return messages, None, True, [len(messages) - 1]
    messages, tools, start = tool_item(rng)
    if rng.random() < 0.1:
        messages = [{"role": "system", "content": pick(rng, PLAIN_SYSTEM)}] + messages
        start += 1
    thinking = rng.random() < 0.25
    if thinking and "thought" not in messages[-1]:
        messages[-1]["thought"] = "No tool is needed." if messages[-1]["content"][:9] != "I have no" else "There is no tool for this."
    messages = with_thoughts(messages, thinking)
    return messages, tools, thinking, [i for i, m in enumerate(messages) if m["role"] == "assistant" and i >= start]


def practice(rng):
    """What the model finds hardest: a list, mostly of numbers, or an answer under a system prompt."""
    if rng.random() < 0.45:
        return conversation(rng, system_share=1)
    t = base_turn(rng, name="lists")
    if rng.random() < 0.6 and not any(c.isdigit() for c in t.user):
        t = base_turn(rng, name="lists")   # a second chance for numbers
    return [user(t.user), assistant(t.answer)], None, False, [1]


def long_conversation(rng, turns):
    """Many turns, some of them about earlier ones."""
    messages = []
    while len(messages) < 2 * turns:
        if rng.random() < 0.6:
            t = base_turn(rng)
            messages += [user(t.user), assistant(t.answer)]
        else:
            messages += memory_dialogue(rng, fillers=rng.randint(0, 3))[0]
    return messages, None, False, [i for i, m in enumerate(messages) if m["role"] == "assistant"]
