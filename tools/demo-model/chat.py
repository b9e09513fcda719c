"""The Gemma 4 prompt format (small form: no empty thought block), as far as the demo model is trained on it.

A conversation becomes a list of segments (kind, value): ("text", str), ("target", str) for what the model itself has to
say, ("image", ref) and ("audio", ref). Joined without the media they are exactly the rendered prompt.
"""

Q = '<|"|>'


def trim(text):
    return text.strip()


def strip_thinking(text):
    """Removes closed and unclosed thought blocks from what an assistant said earlier."""
    kept = [part.split("<|channel>")[0] for part in text.split("<channel|>")]
    return trim("".join(kept))


def by_name(mapping):
    return sorted(mapping.items(), key=lambda kv: kv[0].lower())


def value(v, quote_keys=False):
    if v is None:
        return "null"
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, str):
        return Q + v + Q
    if isinstance(v, dict):
        key = (lambda k: Q + k + Q) if quote_keys else (lambda k: k)
        return "{" + ",".join(key(k) + ":" + value(x, quote_keys) for k, x in by_name(v)) + "}"
    if isinstance(v, (list, tuple)):
        return "[" + ",".join(value(x, quote_keys) for x in v) + "]"
    return str(v)


def type_name(t):
    return ("" if t is None else t if isinstance(t, str) else str(t)).upper()


def property_schema(s):
    """One property of a declaration. Covers scalar types, enums, arrays of scalars and nested objects."""
    kind = type_name(s.get("type"))
    parts = []
    if s.get("description"):
        parts.append("description:" + Q + s["description"] + Q)
    if kind == "STRING" and s.get("enum"):
        parts.append("enum:" + value(list(s["enum"]), True))
    if kind == "ARRAY" and isinstance(s.get("items"), dict) and s["items"]:
        items = []
        for k, v in by_name(s["items"]):
            if v is None:
                continue
            if k == "properties":
                items.append("properties:{" + properties(v) + "}")
            elif k == "required":
                items.append("required:" + value(list(v)))
            elif k == "type":
                items.append("type:" + (value(v.upper()) if isinstance(v, str) else value([x.upper() for x in v])))
            else:
                items.append(k + ":" + value(v, True))
        parts.append("items:{" + ",".join(items) + "}")
    if s.get("nullable"):
        parts.append("nullable:true")
    if kind == "OBJECT":
        own = s.get("properties")
        if not isinstance(own, dict):
            fixed = {"description", "type", "properties", "required", "nullable"}
            own = {k: v if isinstance(v, dict) else {} for k, v in s.items() if k not in fixed}
        parts.append("properties:{" + properties(own) + "}")
        if s.get("required"):
            parts.append("required:" + value(list(s["required"])))
    parts.append("type:" + Q + kind + Q)
    return "{" + ",".join(parts) + "}"


def properties(props):
    return ",".join(k + ":" + property_schema(v) for k, v in by_name(props))


def declaration(tool):
    f = tool["function"]
    text = "declaration:" + f["name"] + "{description:" + Q + f.get("description", "") + Q
    params = f.get("parameters")
    if params:
        text += ",parameters:{"
        if params.get("properties"):
            text += "properties:{" + properties(params["properties"]) + "},"
        if params.get("required"):
            text += "required:" + value(list(params["required"])) + ","
        text += "type:" + Q + params.get("type", "object").upper() + Q + "}"
    if "response" in f:
        r = f["response"]
        text += ",response:{"
        if r.get("description"):
            text += "description:" + Q + r["description"] + Q + ","
        text += "type:" + Q + r.get("type", "object").upper() + Q + "}"
    return text + "}"


def call_text(call):
    f = call["function"]
    args = f.get("arguments") or {}
    return "<|tool_call>call:" + f["name"] + "{" + ",".join(k + ":" + value(v) for k, v in by_name(args)) + "}<tool_call|>"


def response_text(name, content):
    if isinstance(content, dict):
        body = ",".join(k + ":" + value(v) for k, v in by_name(content))
    else:
        body = "value:" + value(content)
    return "response:" + name + "{" + body + "}<tool_response|>"


class Writer:
    """Collects segments, joining neighbours of one kind."""

    def __init__(self):
        self.segments = []

    def put(self, kind, text):
        if kind in ("image", "audio"):
            self.segments.append((kind, text))
            return
        if not text:
            return
        if self.segments and self.segments[-1][0] == kind:
            self.segments[-1] = (kind, self.segments[-1][1] + text)
        else:
            self.segments.append((kind, text))


def put_content(w, content, role, kind):
    if content is None:
        return False
    clean = strip_thinking if role == "model" else trim
    if isinstance(content, str):
        text = clean(content)
        w.put(kind, text)
        return bool(text)
    some = False
    for part in content:
        if part["type"] == "text":
            text = clean(part["text"])
            w.put(kind, text)
            some = some or bool(text.strip())
        elif part["type"] in ("image", "audio"):
            w.put(part["type"], part.get(part["type"]))
            some = True
    return some


def tool_name(calls, message):
    name = message.get("name") or "unknown"
    for call in calls:
        if call.get("id") == message.get("tool_call_id"):
            name = call["function"]["name"]
    return name


def render(messages, tools=None, thinking=False, generate=True, preserve_thinking=False, learn=()):
    """Segments of a conversation; what assistant messages with an index in `learn` say is marked as target."""
    w = Writer()
    w.put("text", "<bos>")
    offset = 0
    first = messages[0] if messages else None
    has_system = first is not None and first["role"] in ("system", "developer")
    if thinking or tools or has_system:
        w.put("text", "<|turn>system\n")
        if thinking:
            w.put("text", "<|think|>\n")
        if has_system:
            c = first["content"]
            w.put("text", trim(c) if isinstance(c, str) else "".join(trim(p.get("text", "")) + " " for p in c))
            offset = 1
        for tool in tools or ():
            w.put("text", "<|tool>" + trim(declaration(tool)) + "<tool|>")
        w.put("text", "<turn|>\n")
    rest = messages[offset:]
    last_user = max((i for i, m in enumerate(rest) if m["role"] == "user"), default=-1)
    state = None          # of the last message that is not a tool's
    previous_role = None
    for i, m in enumerate(rest):
        if m["role"] == "tool":
            continue
        state = None
        role = "model" if m["role"] == "assistant" else m["role"]
        kind = "target" if i + offset in learn else "text"
        if not (role == "model" and previous_role == "assistant"):
            w.put("text", "<|turn>" + role + "\n")
        thought = m.get("reasoning") or m.get("reasoning_content")
        calls = m.get("tool_calls") or []
        if thought and (i > last_user or (preserve_thinking and calls)):
            # After a tool's answer the prompt itself opens the thought.
            answers_tool = thinking and previous_role == "assistant" and i > 0 and rest[i - 1]["role"] == "tool"
            w.put("text" if answers_tool else kind, "<|channel>thought\n")
            w.put(kind, thought + "\n<channel|>")
        for call in calls:
            w.put(kind, call_text(call))
        if calls:
            state = "call"
        responses = []
        if m.get("tool_responses"):
            responses = [(r.get("name") or "unknown", r["response"]) for r in m["tool_responses"]]
        elif calls:
            for follow in rest[i + 1:]:
                if follow["role"] != "tool":
                    break
                body = follow.get("content")
                if isinstance(body, list):
                    body = "".join(p.get("text", "") for p in body if p.get("type") == "text")
                responses.append((tool_name(calls, follow), body))
        for n, (name, body) in enumerate(responses):
            # The first marker is the model's own way to end its calls.
            w.put(kind if n == 0 and calls else "text", "<|tool_response>")
            w.put("text", response_text(name, body))
        if responses:
            state = "response"
        has_content = put_content(w, m.get("content"), role, kind)
        following = next((x["role"] for x in rest[i + 1:] if x["role"] != "tool"), None)
        if state == "call":
            w.put(kind, "<|tool_response>")
        elif role == "model" and following == "assistant" and (not calls or responses):
            pass
        elif not (responses and not has_content and following is None):
            w.put(kind, "<turn|>")
            w.put("text", "\n")
        previous_role = m["role"]
    if generate:
        if state is None:
            w.put("text", "<|turn>model\n")
        elif state == "response" and thinking:
            w.put("text", "<|channel>thought\n")
    return w.segments
