// Tests of what a server must hold: many streams, many requests, hostile requests, a small KV cache. The tests are
// short; with HONE_HOLD=full (scripts/check_hold.sh) they have the sizes of a server in use, and print what they
// counted.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <map>
#include <thread>

#include "core/json_value.h"
#include "serve/hostile_requests.h"
#include "serve/small_server.h"
#include "system/process.h"

namespace hone::test {
namespace {

bool is_full() {
  const char* value = std::getenv("HONE_HOLD");
  return value != nullptr && std::string_view(value) == "full";
}
int sized(int brief, int full) { return is_full() ? full : brief; }

template <class... Parts>
void tell(const Parts&... parts) {
  if (is_full()) (std::cout << "hold: " << ... << parts) << std::endl;
}

// Server and clients are in this process, so a connection takes two descriptors.
void allow_connections(rlim_t count) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = std::min(std::max(limit.rlim_cur, 2 * count + 500), limit.rlim_max);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_GE(limit.rlim_cur, 2 * count + 500) << "raise the hard limit of open files";
}

std::string streamed(std::int64_t max_tokens, int seed) {
  return Json{
      {"prompt", "What is 1 + 2?"}, {"max_tokens", max_tokens}, {"seed", seed}, {"ignore_eos", true}, {"stream", true}}
      .dump();
}

std::string text_of_events(const std::string& stream) {
  std::string text;
  const std::vector<std::string> events = events_of(stream);
  for (const std::string& event : events)
    if (event != "[DONE]") text += Json::parse(event)["choices"][0]["text"].get<std::string>();
  return events.empty() || events.back() != "[DONE]" ? "incomplete" : text;
}

double metric(const SmallServer& server, const std::string& name) {
  const std::string metrics = fetch(server.port(), "GET", "/metrics").body;
  const std::size_t at = metrics.find("\n" + name);
  return at == std::string::npos ? -1 : std::stod(metrics.substr(metrics.find("} ", at) + 2));
}

// Waits until nothing is generated any more, and checks that every block of the KV cache is free.
void expect_idle(const SmallServer& server) {
  while (metric(server, "vllm:num_requests_running{") > 0 || metric(server, "vllm:num_requests_waiting{") > 0)
    std::this_thread::yield();
  EXPECT_EQ(metric(server, "vllm:kv_cache_usage_perc{"), 0.0);
}

#ifdef __SANITIZE_ADDRESS__
constexpr std::uint64_t kOfSanitizer = std::uint64_t{256} << 20;  // freed memory that it keeps
#elif defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kOfSanitizer = std::uint64_t{64} << 20;  // what it remembers of memory and of ended threads
#else
constexpr std::uint64_t kOfSanitizer = 0;
#endif

// Every fifth stream is dropped after some events and every seventh is read last, with small buffers on the
// server's side: it then sends what has been kept.
TEST(Hold, ManyStreamsWithSlowReadersAndDroppedConnections) {
  const int streams = sized(150, 2000);
  allow_connections(static_cast<rlim_t>(streams));
  HttpOptions http;
  http.max_unsent_bytes = 300;
  SmallServer server({.max_num_seqs = 64, .max_requests = 4000, .http = http});
  constexpr int kSeeds = 10;
  constexpr std::int64_t kTokens = 48;
  std::vector<std::string> alone;
  for (int seed = 0; seed < kSeeds; ++seed)
    alone.push_back(text_of_events(fetch(server.port(), "POST", "/v1/completions", streamed(kTokens, seed)).body));
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < streams; ++i) {
    clients.push_back(std::make_unique<RawClient>(server.port()));
    clients.back()->send(http_request("POST", "/v1/completions", streamed(kTokens, i % kSeeds)));
  }
  // Every request has reached the engine, and every connection is still open, with an answer or without.
  while (metric(server, "vllm:request_params_max_tokens_count{") < streams + kSeeds) std::this_thread::yield();
  tell(server.server().connections(), " connections are open");
  int dropped = 0;
  int slow = 0;
  const auto is_dropped = [](int i) { return i % 5 == 3; };
  const auto is_slow = [](int i) { return i % 7 == 2; };
  for (int i = 0; i < streams; ++i) {
    if (!is_dropped(i)) continue;
    if (i % 2 == 0) {
      EXPECT_TRUE(clients[static_cast<std::size_t>(i)]->wait_for("data: "));
    }
    clients[static_cast<std::size_t>(i)]->close();
    ++dropped;
  }
  for (const bool late : {false, true}) {
    for (int i = 0; i < streams; ++i) {
      if (is_dropped(i) || is_slow(i) != late) continue;
      slow += late ? 1 : 0;
      const RawResponse response = clients[static_cast<std::size_t>(i)]->receive();
      ASSERT_EQ(response.status, 200);
      ASSERT_EQ(text_of_events(response.body), alone[static_cast<std::size_t>(i % kSeeds)]) << i;
    }
  }
  clients.clear();
  expect_idle(server);
  tell(streams, " streams, ", dropped, " dropped, ", slow, " read last: the others have the texts of streams alone");
}

TEST(Hold, RequestsLeaveNoMemory) {
  const int requests = sized(2000, 100'000);
  constexpr int kClients = 8;
  SmallServer server({.max_num_seqs = 16});
  const std::string chat =
      Json{{"messages", {{{"role", "user"}, {"content", "abc"}}}}, {"max_tokens", 2}, {"seed", 1}}.dump();
  const std::string completion = Json{{"prompt", "abc"}, {"max_tokens", 1}, {"logprobs", 2}}.dump();
  const std::string wrong = R"({"prompt": "abc", "max_tokens": -1})";
  std::atomic<int> failed = 0;
  const auto run = [&](int count) {
    std::vector<std::thread> threads;
    for (int c = 0; c < kClients; ++c) {
      threads.emplace_back([&, c] {
        std::unique_ptr<RawClient> client;
        for (int i = c; i < count; i += kClients) {
          if (i % 50 == c) client = nullptr;  // a new connection now and then
          if (!client) client = std::make_unique<RawClient>(server.port());
          const int kind = i / kClients % 4;
          const char* path = kind < 2 ? "/v1/chat/completions" : "/v1/completions";
          client->send(http_request("POST", path,
                                    kind == 0   ? chat
                                    : kind == 1 ? chat.substr(0, chat.size() - 1) + R"(, "stream": true})"
                                    : kind == 2 ? completion
                                                : wrong));
          failed += client->receive().status != (kind == 3 ? 400 : 200) ? 1 : 0;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  run(requests / 5);
  const std::uint64_t before = resident_bytes();
  run(requests - requests / 5);
  const std::uint64_t after = resident_bytes();
  EXPECT_EQ(failed, 0);
  EXPECT_LT(after, before + (std::uint64_t{8} << 20) + kOfSanitizer);
  expect_idle(server);
  tell(requests, " requests; resident memory after a fifth of them ", before >> 10, " KiB, after all ", after >> 10,
       " KiB");
}

// While a client has one stream after the other, each of which must be as if it were alone.
TEST(Hold, HostileRequestsGetStatus4xxAndHarmNoOther) {
  const int count = sized(630, 20'000);
  HttpOptions http;
  http.max_body_bytes = 200'000;
  http.header_timeout = std::chrono::seconds(5);
  SmallServer server({.max_num_seqs = 8, .embeddings = Pooling::kMean, .http = http});
  constexpr std::int64_t kTokens = 100;
  const std::string alone = text_of_events(fetch(server.port(), "POST", "/v1/completions", streamed(kTokens, 1)).body);
  std::atomic<bool> ends = false;
  std::atomic<int> streams = 0;
  std::thread other([&] {
    while (!ends || streams == 0) {
      EXPECT_EQ(text_of_events(fetch(server.port(), "POST", "/v1/completions", streamed(kTokens, 1)).body), alone);
      ++streams;
    }
  });
  std::vector<std::unique_ptr<RawClient>> slow;  // clients that never complete their headers
  for (int i = 0; i < sized(4, 100); ++i) {
    slow.push_back(std::make_unique<RawClient>(server.port()));
    slow.back()->send("POST /v1/completions HTTP/1.1\r\nHo");
  }
  std::map<std::string, std::map<int, int>> statuses;
  for (int i = 0; i < count; ++i) {
    const HostileRequest request = hostile_request(static_cast<std::uint64_t>(i), http.max_body_bytes, 16 << 10);
    RawClient client(server.port());
    client.send(request.bytes);
    if (request.leaves) {
      client.close();
      ++statuses[request.kind][0];
      continue;
    }
    for (int valid = 0; valid < request.valid_before; ++valid) EXPECT_EQ(client.receive().status, 200) << i;
    const RawResponse response = client.receive();
    ++statuses[request.kind][response.status];
    EXPECT_TRUE(response.status >= 400 && response.status < 500)
        << request.kind << ": " << response.status << " " << response.body.substr(0, 200) << "\n"
        << request.bytes.substr(0, 400);
    if (!request.ends) continue;
    const std::string rest = client.rest();  // the server has closed the connection
    EXPECT_EQ(rest.find("HTTP/1.1 2"), std::string::npos) << request.kind << "\n" << request.bytes.substr(0, 400);
  }
  for (const auto& client : slow) EXPECT_EQ(client->rest(), "");
  ends = true;
  other.join();
  for (const auto& [kind, counts] : statuses)
    for (const auto& [status, times] : counts)
      tell(kind, ": ", status == 0 ? "left" : std::to_string(status), " x ", times);
  expect_idle(server);
  tell(count, " hostile requests next to ", streams.load(), " streams");
}

// A KV cache with room for one completion of max_model_len: whatever fits alone is completed, with the same tokens.
TEST(Hold, ASmallKvCacheFailsNoRequest) {
  const int requests = sized(24, 400);
  constexpr std::int64_t kLength = 128;
  SmallServer small({.max_model_len = kLength, .max_num_seqs = 8, .num_blocks = kLength / 16});
  const auto body = [&](int i) {
    return Json{{"prompt", std::vector<int>(static_cast<std::size_t>(1 + i % 40), 30 + i % 50)},
                {"max_tokens", kLength - 1 - i % 40},
                {"seed", i},
                {"ignore_eos", true}};
  };
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < requests; ++i) {
    clients.push_back(std::make_unique<RawClient>(small.port()));
    clients.back()->send(http_request("POST", "/v1/completions", body(i).dump()));
  }
  std::vector<Json> texts;
  for (const std::unique_ptr<RawClient>& client : clients) {
    const RawResponse response = client->receive();
    ASSERT_EQ(response.status, 200) << response.body;
    const Json choice = Json::parse(response.body)["choices"][0];
    EXPECT_EQ(choice["finish_reason"], "length");
    texts.push_back(choice["text"]);
  }
  const double preemptions = metric(small, "vllm:num_preemptions_total{");
  EXPECT_GT(preemptions, 0);
  expect_idle(small);
  // Only now, because one thread at a time may use a device.
  SmallServer roomy({.max_model_len = kLength, .max_num_seqs = 8});
  for (int i = 0; i < requests; i += requests / 24) {
    const Json alone = Json::parse(roomy.post("/v1/completions", body(i)).body);
    EXPECT_EQ(texts[static_cast<std::size_t>(i)], alone["choices"][0]["text"]) << i;
  }
  tell(requests, " completions of up to ", kLength, " tokens in a KV cache of ", kLength, ": ", preemptions,
       " preemptions, none failed");
}

}  // namespace
}  // namespace hone::test
