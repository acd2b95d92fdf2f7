"""Requests of every interface at random, and clients that read all of the answer, some of it or nothing: what
server_stress.py and soak.py share."""

import base64
import http.client
import json
import os
import socket
import time

from server_support import DATA, MODEL, TALE

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name", "age"]}
TOOLS = [{"type": "function", "function": {"name": "read_file", "description": "Reads a file.", "parameters": {
    "type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}}}]
WRONG = (b"", b"{", b"[]", b"\xff\xfe", b'{"messages": 7}', b'{"model": "none", "messages": []}', b"{" * 3000,
         b'{"messages": [{"role": "user", "content": "a"}], "max_tokens": -1}', b'{"prompt": "a", "grammar": "root ::= ("}')


def picture():
    with open(os.path.join(DATA, "models", "qwen3-vl", "image0.png"), "rb") as file:
        return "data:image/png;base64," + base64.b64encode(file.read()).decode()


def exact(pick, models):
    """A request whose answer is the same tokens whenever it is asked: POST, path, body."""
    model, words = pick.choice(models), "Tale %d of a fox and a crow. " % pick.randrange(12) * pick.choice((1, 4, 15))
    tokens = pick.choice((1, 8, 30))
    return pick.choice((
        ("/v1/chat/completions", {"model": model, "messages": [{"role": "user", "content": words}], "max_tokens": tokens,
                                  "temperature": 0, "ignore_eos": True}),
        ("/v1/completions", {"model": model, "prompt": words, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}),
        ("/v1/completions", {"model": model, "prompt": words, "max_tokens": tokens, "temperature": 1, "seed": pick.randrange(5)}),
        ("/v1/chat/completions", {"model": model, "messages": [{"role": "user", "content": words}], "max_tokens": 40,
                                  "temperature": 0, "guided_json": SCHEMA}),
        ("/completion", {"model": model, "prompt": words, "n_predict": tokens, "temperature": 0})))


def request_of(pick, models, seeing=None):
    """One request: method, path, body. `seeing`: a model that sees pictures."""
    model, tokens = pick.choice(models), pick.choice((1, 5, 40, 300))
    chat = {"model": model, "messages": [{"role": "user", "content": "Tale %d. " % pick.randrange(4) * pick.choice((1, 30))}],
            "max_tokens": tokens, "stream": pick.random() < 0.6, "ignore_eos": pick.random() < 0.5,
            "priority": pick.choice(("batch", "interactive"))}
    fragments = [{"type": "text", "text": "Once %d. " % pick.randrange(3) * 40, "cache": "span"}, {"type": "text", "text": "Go on."}]
    work = [dict(TALE[0]), {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a.txt"}'}}]},
        {"role": "tool", "tool_call_id": "c", "content": "line %d\n" % pick.randrange(9) * 20}]
    requests = [
        ("POST", "/v1/chat/completions", chat),
        ("POST", "/v1/chat/completions", dict(chat, n=3, temperature=1)),
        ("POST", "/v1/chat/completions", dict(chat, guided_json=SCHEMA)),
        ("POST", "/v1/chat/completions", dict(chat, messages=[{"role": "user", "content": fragments}], answer_span=True)),
        ("POST", "/v1/chat/completions", dict(chat, messages=work, tools=TOOLS)),
        ("POST", "/v1/completions", {"model": model, "prompt": ["Once upon a time. " * 20] * 3, "echo": True, "logprobs": 2,
                                     "max_tokens": pick.choice((0, 8)), "stream": pick.random() < 0.5}),
        ("POST", "/v1/embeddings", {"model": model, "input": ["Text %d. " % i * 20 for i in range(pick.choice((1, 40)))]}),
        ("POST", "/api/chat", {"model": model, "messages": TALE, "options": {"num_predict": tokens}}),
        ("POST", "/api/generate", {"model": model, "keep_alive": 0}),
        ("POST", "/api/generate", {"model": model, "prompt": "Hi", "options": {"num_predict": tokens}, "keep_alive": pick.choice((0, 1, -1))}),
        ("POST", "/v1/messages", {"model": model, "messages": TALE, "max_tokens": tokens, "stream": True}),
        ("POST", "/v1/responses", {"model": model, "input": "Hi", "max_output_tokens": tokens, "stream": True}),
        ("POST", "/completion", {"model": model, "prompt": "word " * 200, "n_predict": tokens, "stream": True}),
        ("GET", "/metrics", None), ("GET", "/watch", None), ("GET", "/slots", None), ("GET", "/api/ps", None)]
    if seeing:
        requests.append(("POST", "/v1/chat/completions", dict(chat, model=seeing, messages=[{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": picture()}}, {"type": "text", "text": "What is it?"}]}])))
    return pick.choice(requests)


def visit(server, pick, method, path, body):
    """Makes a request and reads all of the answer, some of it or nothing; its status, None without one, 0 when the
    connection was ended."""
    connection = server.connect()
    try:
        connection.request(method, path, json.dumps(body) if isinstance(body, dict) else body)
        patience = "a bit" if path == "/watch" else pick.choice(("all", "all", "a bit", "none", "reset"))
        if patience == "reset":
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        if patience in ("none", "reset"):
            time.sleep(pick.choice((0, 0.01, 0.2)))
            return None
        response = connection.getresponse()
        if patience == "all":
            response.read()
        else:
            response.read1(pick.choice((1, 500)))
        return response.status
    except (http.client.HTTPException, ConnectionError):
        return 0  # a queue that is full may be said before the body is read
    finally:
        connection.close()
