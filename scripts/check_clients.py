"""Sends requests to `hone serve` with clients that others have written and checks the answers.

Arguments: the URL of the server without /v1, the name of the model, the API key. Needs the packages openai, anthropic,
langchain-openai and prometheus_client. scripts/check_clients.sh starts a server with a small model and runs this.
"""

import base64
import concurrent.futures
import struct
import sys
import urllib.request

import anthropic
import openai
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from prometheus_client.parser import text_string_to_metric_families

URL, MODEL, KEY = sys.argv[1:4]
QUESTION = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 1 + 2?"}]
client = openai.OpenAI(base_url=URL + "/v1", api_key=KEY, max_retries=0)


def check(what, condition, seen=""):
    print("ok  " if condition else "FAIL", what, "" if condition else seen)
    check.failed += not condition


check.failed = 0


def refused(kind, call):
    try:
        call()
    except kind as error:
        return error
    return None


def models():
    names = [model.id for model in client.models.list()]
    check("models.list", MODEL in names, names)
    check("models.retrieve", client.models.retrieve(MODEL).id == MODEL)
    check("an unknown model is 404", refused(openai.NotFoundError, lambda: client.models.retrieve("nothing")))
    wrong = openai.OpenAI(base_url=URL + "/v1", api_key="wrong", max_retries=0)
    check("a wrong key is 401", refused(openai.AuthenticationError, lambda: wrong.models.list()))


def chat():
    arguments = {"model": MODEL, "messages": QUESTION, "max_tokens": 24, "seed": 3, "n": 2, "logprobs": True}
    whole = client.chat.completions.create(**arguments)
    texts, reasons, tokens = ["", ""], [None, None], [0, 0]
    usage = None
    for event in client.chat.completions.create(**arguments, stream=True, stream_options={"include_usage": True}):
        usage = event.usage or usage
        for choice in event.choices:
            texts[choice.index] += choice.delta.content or ""
            reasons[choice.index] = choice.finish_reason or reasons[choice.index]
            tokens[choice.index] += len(choice.logprobs.content) if choice.logprobs else 0
    check("chat: streamed texts equal the whole", texts == [c.message.content for c in whole.choices], texts)
    check("chat: finish reasons", reasons == [c.finish_reason for c in whole.choices], reasons)
    check("chat: usage", usage == whole.usage and usage.completion_tokens == sum(tokens), usage)
    check("chat: log-probabilities", all(entry.logprob <= 0 for c in whole.choices for entry in c.logprobs.content))
    error = refused(openai.BadRequestError, lambda: client.chat.completions.create(**arguments, temperature=-1))
    check("chat: a refusal names the parameter", error and error.param == "temperature", error)
    tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}]
    check("chat: tools", client.chat.completions.create(**arguments, tools=tools).choices[0].message is not None)
    listed = client.chat.completions.create(**{**arguments, "temperature": 0}, top_logprobs=2).choices[0].logprobs.content
    check("chat: alternatives", all(e.top_logprobs[0].logprob == e.logprob and len(e.top_logprobs) == 2 for e in listed))
    extra = {"top_k": 1, "chat_template_kwargs": {"enable_thinking": False}}
    check("chat: vLLM's parameters", client.chat.completions.create(**arguments, extra_body=extra).choices)


def completions():
    whole = client.completions.create(model=MODEL, prompt=["What is", "The"], max_tokens=8, temperature=0, logprobs=0)
    check("completions: two prompts", [choice.index for choice in whole.choices] == [0, 1])
    stream = client.completions.create(model=MODEL, prompt="The", max_tokens=8, temperature=0, stream=True)
    text = "".join(event.choices[0].text for event in stream)
    check("completions: streamed text equals the whole", text == whole.choices[1].text, text)
    stop = text[len(text) // 2 :]
    cut = client.completions.create(model=MODEL, prompt="The", max_tokens=8, temperature=0, stop=stop).choices[0]
    check("completions: stop", cut.text == text[: text.find(stop)] and cut.finish_reason == "stop", cut)


def responses():
    arguments = {"model": MODEL, "instructions": "Be brief.", "input": "What is 1 + 2?", "max_output_tokens": 24}
    arguments["temperature"] = 0
    whole = client.responses.create(**arguments)
    check("responses: status", whole.status in ("completed", "incomplete"), whole)
    text, last, types = "", None, []
    for event in client.responses.create(**arguments, stream=True):
        types.append(event.type)
        text += event.delta if event.type == "response.output_text.delta" else ""
        last = event
    check("responses: streamed text equals the whole", text == whole.output_text, text)
    check("responses: the last event has the response", last.response.output_text == whole.output_text, last)
    check("responses: the first event", types[0] == "response.created", types)
    with client.responses.stream(**arguments) as stream:
        done = [event.text for event in stream if event.type == "response.output_text.done"]
    check("responses: the stream helper", done == [whole.output_text], done)
    turn = [{"role": "user", "content": "Hi"}] + [item.model_dump() for item in whole.output]
    turn += [{"role": "user", "content": [{"type": "input_text", "text": "And 2 + 2?"}]}]
    check("responses: another turn", client.responses.create(model=MODEL, input=turn, max_output_tokens=4).output)


def messages():
    claude = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0)
    arguments = {"model": MODEL, "system": "Be brief.", "max_tokens": 24, "extra_body": {"temperature": 0}}
    arguments["messages"] = [{"role": "user", "content": [{"type": "text", "text": "What is 1 + 2?"}]}]
    whole = claude.messages.create(**arguments)
    check("messages: stop_reason", whole.stop_reason in ("end_turn", "max_tokens"), whole)
    text = "".join(block.text for block in whole.content if block.type == "text")
    with claude.messages.stream(**arguments) as stream:
        check("messages: streamed text equals the whole", "".join(stream.text_stream) == text)
        final = stream.get_final_message()
    check("messages: the final message", final.usage == whole.usage and final.stop_reason == whole.stop_reason, final)
    stop = text[len(text) // 2 :]
    cut = claude.messages.create(**arguments, stop_sequences=["never", stop])
    check("messages: stop_sequence", cut.stop_reason == "stop_sequence" and cut.stop_sequence == stop, cut)
    bad = refused(anthropic.BadRequestError, lambda: claude.messages.create(**{**arguments, "extra_body": {"temperature": -1}}))
    check("messages: a refusal names the parameter", bad and "temperature" in bad.message, bad)
    tool = {"name": "add", "description": "Adds", "input_schema": {"type": "object", "properties": {}}}
    talk = arguments["messages"] + [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "add", "input": {"a": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "3"}]},
    ]
    check("messages: tools", claude.messages.create(**{**arguments, "messages": talk, "tools": [tool]}).content is not None)


def embeddings():
    texts = ["What is 1 + 2?", "naïve 日本 🙂"]
    # The client asks for base64 unless a format is given, and decodes it.
    decoded = client.embeddings.create(model=MODEL, input=texts)
    plain = client.embeddings.create(model=MODEL, input=texts, encoding_format="float")
    floats = [[list(struct.unpack("f" * len(e), struct.pack("f" * len(e), *e))) for e in (one.embedding for one in kind.data)]
              for kind in (decoded, plain)]
    check("embeddings: base64 and float are equal", floats[0] == floats[1])
    check("embeddings: length 1", all(abs(sum(x * x for x in one.embedding) - 1) < 1e-5 for one in plain.data))
    raw = client.embeddings.with_raw_response.create(model=MODEL, input=texts[0], encoding_format="base64").http_response.json()
    values = base64.b64decode(raw["data"][0]["embedding"])
    check("embeddings: base64 has little-endian floats", list(struct.unpack(f"<{len(values) // 4}f", values)) == decoded.data[0].embedding)
    check("embeddings: usage", plain.usage.total_tokens == plain.usage.prompt_tokens > 2, plain.usage)
    bad = refused(openai.BadRequestError, lambda: client.embeddings.create(model=MODEL, input=texts, dimensions=3))
    check("embeddings: a refusal names the parameter", bad and bad.param == "dimensions", bad)


def langchain():
    chat_model = ChatOpenAI(base_url=URL + "/v1", api_key=KEY, model=MODEL, temperature=0, max_tokens=24, max_retries=0)
    whole = chat_model.invoke("What is 1 + 2?")
    check("LangChain: streamed text equals the whole",
          "".join(part.content for part in chat_model.stream("What is 1 + 2?")) == whole.content, whole)
    check("LangChain: usage", whole.usage_metadata["output_tokens"] > 0, whole.usage_metadata)
    check("LangChain: a batch", [one.content for one in chat_model.batch(["What is 1 + 2?"] * 3)] == [whole.content] * 3)
    schema = {"title": "prime", "description": "A prime", "type": "object", "properties": {"prime": {"type": "boolean"}},
              "required": ["prime"], "additionalProperties": False}
    answer = None
    for seed in range(20):  # an answer of a model without training may have too much white space
        longer = ChatOpenAI(base_url=URL + "/v1", api_key=KEY, model=MODEL, seed=seed, max_tokens=200, max_retries=0)
        try:
            answer = longer.with_structured_output(schema, method="json_schema", strict=True).invoke("Is 7 a prime?")
            break
        except openai.LengthFinishReasonError:
            continue
    check("LangChain: structured output", answer and set(answer) == {"prime"}, answer)
    embedder = OpenAIEmbeddings(base_url=URL + "/v1", api_key=KEY, model=MODEL, check_embedding_ctx_length=False)
    check("LangChain: embeddings", len(embedder.embed_documents(["a", "b"])) == 2)


def metrics():
    text = urllib.request.urlopen(URL + "/metrics").read().decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    for name in ("e2e_request_latency", "request_queue_time", "request_prefill_time", "request_decode_time"):
        family = families.get(f"vllm:{name}_seconds")
        check(f"Prometheus: {name}", family and family.type == "histogram" and family.samples, name)
    check("Prometheus: requests", families["vllm:request_success"].type == "counter", list(families))


def concurrent_requests():
    def one(seed):
        return client.completions.create(model=MODEL, prompt="The", max_tokens=16, seed=seed).choices[0].text

    alone = [one(seed) for seed in range(8)]
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        together = list(pool.map(one, [seed % 8 for seed in range(64)]))
    check("concurrent requests have the same texts", together == alone * 8)


for run in (models, chat, completions, responses, messages, embeddings, langchain, concurrent_requests, metrics):
    run()
print("failed:", check.failed)
sys.exit(check.failed != 0)
