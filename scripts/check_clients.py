"""Sends requests to `hone serve` with clients that others have written and checks the answers.

Arguments: the URL of the server without /v1, the name of the model, the API key, the URL of a server of the same model
that needs no key and allows updates of weights, and the folder of the model. Needs the packages openai, anthropic,
langchain-openai, prometheus_client and lm_eval[api]; checks with trl and distilabel are skipped without these.
scripts/check_clients.sh starts the servers with a small model and runs this.
"""

import asyncio
import base64
import concurrent.futures
import importlib.util
import json
import os
import pathlib
import struct
import sys
import tempfile
import urllib.request

import anthropic
import openai
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from prometheus_client.parser import text_string_to_metric_families

URL, MODEL, KEY, OPEN_URL, FOLDER = sys.argv[1:6]
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


# A task of each kind that lm-eval sends: choices by log-probabilities, whole texts by log-probabilities, and answers.
LM_EVAL_TASKS = {
    "small_choice": """
task: small_choice
dataset_path: json
dataset_kwargs: {data_files: {test: DATA}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: answer
target_delimiter: ""
metric_list: [{metric: acc}]
""",
    "small_text": """
task: small_text
dataset_path: json
dataset_kwargs: {data_files: {test: DATA}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{question}} {{choices[0]}}"
metric_list: [{metric: word_perplexity}]
""",
    "small_answer": """
task: small_answer
dataset_path: json
dataset_kwargs: {data_files: {test: DATA}}
test_split: test
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{choices[0]}}"
generation_kwargs: {until: ["\\n"], max_gen_toks: 12, do_sample: false}
metric_list: [{metric: exact_match}]
""",
}


def logprobs_of(prompt, continuation):
    """The log-probability of a continuation, both as token ids, by an echo of the server."""
    echo = client.completions.create(model=MODEL, prompt=prompt + continuation, max_tokens=1, temperature=0, logprobs=1,
                                     echo=True).choices[0].logprobs
    return sum(echo.token_logprobs[len(prompt):-1])


def lm_eval():
    os.environ |= {"OPENAI_API_KEY": KEY, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    import lm_eval as harness
    from lm_eval.tasks import TaskManager

    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder, "data.jsonl")
        rows = [{"question": f"What is {i} + 2?", "choices": [f" The answer is {i + 2}.", " naïve 日本", " 🙂"], "answer": 0}
                for i in range(12)]
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        for name, text in LM_EVAL_TASKS.items():
            pathlib.Path(folder, name + ".yaml").write_text(text.replace("DATA", str(data)))
        tasks = TaskManager(include_path=folder, include_defaults=False)

        def evaluated(model, names, path, **more):
            arguments = {"model": MODEL, "base_url": URL + path, "num_concurrent": 4, "max_retries": 1,
                         "max_length": 512} | more
            return harness.simple_evaluate(model=model, model_args=arguments, tasks=names, task_manager=tasks,
                                           log_samples=True, bootstrap_iters=0, apply_chat_template=model != "local-completions")

        local = {"tokenizer": FOLDER, "tokenizer_backend": "huggingface"}
        for tokenized in (True, False):
            seen = evaluated("local-completions", ["small_choice", "small_text", "small_answer"], "/v1/completions",
                             tokenized_requests=tokenized, **local)
            kind = "token ids" if tokenized else "texts"
            samples = seen["samples"]["small_choice"]
            check(f"lm-eval: choices by {kind}", len(samples) == len(rows) and 0 <= seen["results"]["small_choice"]["acc,none"] <= 1)
            from transformers import AutoTokenizer

            encode = AutoTokenizer.from_pretrained(FOLDER).encode
            for sample in samples[:3]:
                for choice, answer in zip(sample["doc"]["choices"], sample["filtered_resps"]):
                    whole, prompt = encode(sample["doc"]["question"] + choice), encode(sample["doc"]["question"])
                    direct = logprobs_of(whole[: len(prompt)], whole[len(prompt):])
                    check(f"lm-eval: a log-probability by {kind}", abs(float(answer[0]) - direct) < 1e-4, (answer, direct))
            check(f"lm-eval: perplexity by {kind}", seen["results"]["small_text"]["word_perplexity,none"] > 1)
            answers = [sample["resps"][0][0] for sample in seen["samples"]["small_answer"]]
            direct = client.completions.create(model=MODEL, prompt=rows[0]["question"], max_tokens=12, temperature=0, stop=["\n"])
            check(f"lm-eval: answers by {kind}", answers[0] == direct.choices[0].text, (answers[0], direct))
        seen = evaluated("local-chat-completions", ["small_answer"], "/v1/chat/completions")
        answers = [sample["resps"][0][0] for sample in seen["samples"]["small_answer"]]
        direct = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": rows[0]["question"]}],
                                                max_tokens=12, temperature=0, stop=["\n"])
        check("lm-eval: chat", answers[0] == direct.choices[0].message.content, (answers[0], direct))


def trl():
    if importlib.util.find_spec("trl") is None:
        return print("skip TRL's VLLMClient: the package trl is not installed")
    import torch
    from trl.generation import vllm_client

    # The client asks for vLLM's package, which it needs for NCCL only: it is replaced by what sends nothing.
    class NoTransfer:
        trainer_send_weights = staticmethod(lambda **_: None)

    vllm_client.is_vllm_available = lambda *_, **__: True
    vllm_client.NCCLWeightTransferEngine, vllm_client.NCCLTrainerSendWeightsArgs = NoTransfer, lambda **_: None
    vllm_client.get_ip = lambda: "127.0.0.1"
    trainer = vllm_client.VLLMClient(base_url=OPEN_URL, connection_timeout=10)
    trainer.session.mount("http://", vllm_client.HTTPAdapter())  # no retries
    check("TRL: the model", trainer.model == MODEL and trainer.get_world_size() == 1, trainer.model)
    prompts = ["What is 1 + 2?", "The answer"]
    drawn = trainer.generate(prompts, n=2, max_tokens=6, temperature=1.0, generation_kwargs={"seed": 3, "ignore_eos": True})
    direct = client.completions.create(model=MODEL, prompt=prompts, n=2, max_tokens=6, temperature=1.0, seed=3, logprobs=0,
                                       extra_body={"ignore_eos": True, "return_token_ids": True, "top_k": 0, "min_p": 0})
    check("TRL: generate", drawn["completion_ids"] == [choice.token_ids for choice in direct.choices], drawn)
    check("TRL: prompts", drawn["prompt_ids"] == [choice.prompt_token_ids for choice in direct.choices[::2]], drawn)
    check("TRL: log-probabilities", [[entry[0] for entry in one] for one in drawn["logprobs"]]
          == [choice.logprobs.token_logprobs for choice in direct.choices])
    check("TRL: their tokens", [[entry[0] for entry in one] for one in drawn["logprob_token_ids"]] == drawn["completion_ids"])
    listed = trainer.generate(drawn["prompt_ids"], max_tokens=4, logprobs=3, generation_kwargs={"ignore_eos": True})
    check("TRL: alternatives", all(len(entry) in (3, 4) for one in listed["logprobs"] for entry in one), listed)
    guided = trainer.generate(prompts, max_tokens=8, structured_outputs_regex="[0-9]{3}")
    check("TRL: a regular expression", all(len(ids) >= 1 for ids in guided["completion_ids"]), guided)
    talked = trainer.chat([QUESTION, QUESTION[1:]], n=2, max_tokens=5, generation_kwargs={"seed": 1})
    check("TRL: chat", len(talked["prompt_ids"]) == 2 and len(talked["completion_ids"]) == 4 and talked["logprobs"], talked)
    sequences = [prompt + ids for prompt, ids in zip(drawn["prompt_ids"], drawn["completion_ids"][::2])]
    scored = trainer.get_sequence_logprobs(sequences, [len(prompt) for prompt in drawn["prompt_ids"]], top_logprobs=20)
    near = [abs(a[0] - b[0]) < 1e-4 for one, other in zip(scored["actual_logprobs"], drawn["logprobs"][::2])
            for a, b in zip(one, other) if a[0] != float("-inf")]
    check("TRL: scores of sequences", near and all(near), scored["actual_logprobs"])
    trainer.reset_prefix_cache()
    again = trainer.generate(prompts, n=2, max_tokens=6, temperature=1.0, generation_kwargs={"seed": 3, "ignore_eos": True})
    check("TRL: the same after reset_prefix_cache", again == drawn)
    # Weights go over NCCL, which needs GPUs on both ends: a server on a CPU says so.
    error = refused(Exception, lambda: trainer.init_communicator("cuda:0"))
    check("TRL: no communicator on a CPU", error and "no weight-transfer engine" in str(error), error)
    error = refused(Exception, lambda: trainer.update_named_param("model.norm.weight", torch.ones(32)))
    check("TRL: weights over NCCL are refused", error and "which needs a server on one GPU" in str(error), error)
    older = {"host": "0.0.0.0", "port": 51216, "world_size": 2, "client_device_uuid": "x"}  # of TRL 0.16 to 1.10
    answer = trainer.session.post(OPEN_URL + "/init_communicator/", json=older)
    check("TRL: nor is there one for older clients", answer.status_code == 501 and "which needs a server on one GPU" in answer.text, answer.text)
    trainer.close_communicator()


def open_r1():
    """What open-r1's scripts send: many conversations concurrently, several answers of each, and by distilabel."""
    questions = [f"What is {i} + 2?" for i in range(24)]

    async def ask():
        several = openai.AsyncOpenAI(base_url=URL + "/v1", api_key=KEY, max_retries=0, timeout=900)
        return await asyncio.gather(*(several.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": question}], max_tokens=16, n=2, temperature=0.6, top_p=0.95,
            frequency_penalty=0, presence_penalty=0, stop=None, logprobs=False, seed=1) for question in questions))

    answers = asyncio.run(ask())
    check("open-r1: two answers of each", all(len(answer.choices) == 2 and answer.usage.completion_tokens > 0 for answer in answers))
    if importlib.util.find_spec("distilabel") is None:
        return print("skip distilabel: the package is not installed")
    from distilabel.models.llms import OpenAILLM
    from distilabel.steps.tasks import TextGeneration

    llm = OpenAILLM(base_url=URL + "/v1", api_key=KEY, model=MODEL, timeout=900, max_retries=0,
                    generation_kwargs={"max_new_tokens": 16, "temperature": 0.6, "top_p": 0.95})
    task = TextGeneration(llm=llm, template="{{ instruction }}", num_generations=2, group_generations=True)
    task.load()
    rows = next(task.process([{"instruction": question} for question in questions]))
    check("open-r1: distilabel", len(rows) == 24 and all(len(row["generation"]) == 2 for row in rows), rows[:1])


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


for run in (models, chat, completions, responses, messages, embeddings, langchain, concurrent_requests, lm_eval, trl,
            open_r1, metrics):
    run()
print("failed:", check.failed)
sys.exit(check.failed != 0)
