// Requests to the server that sent the page.
export class ApiError extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

export async function request(path, key, options = {}) {
  const headers = { ...(options.body && { "Content-Type": "application/json" }), ...(key && { Authorization: `Bearer ${key}` }) };
  let answer = null;
  try {
    answer = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The server cannot be reached");
  }
  if (answer.ok) return answer;
  const body = await answer.json().catch(() => null);
  throw new ApiError(answer.status, body?.error?.message ?? `The server answered with status ${answer.status}`);
}

export async function version() { return (await request("version", "")).json(); }

export async function models(key) {
  const list = await (await request("v1/models", key, { cache: "no-store" })).json();
  return list.data.map((model) => model.id);
}

// Yields the deltas of a streamed chat completion, and its usage as {usage}.
export async function* chat(body, key, signal) {
  const answer = await request("v1/chat/completions", key, {
    method: "POST", signal, body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }) });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let kept = "";
  for (;;) {
    let part = null;
    try {
      part = await reader.read();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError(0, "The connection to the server has ended");
    }
    if (part.done) throw new ApiError(0, "The answer has ended early");
    const events = (kept + part.value).split("\n\n");
    kept = events.pop();
    for (const event of events) {
      const data = event.split("\n").find((line) => line.startsWith("data: "))?.slice(6);
      if (data === "[DONE]") return;
      if (!data) continue;
      const value = JSON.parse(data);
      if (value.error) throw new ApiError(500, value.error.message);
      if (value.usage) yield { usage: value.usage };
      const choice = value.choices?.[0];
      if (choice) yield { ...choice.delta, finish: choice.finish_reason };
    }
  }
}
