// Weights that a trainer sends while a server runs, over loopback, in TRL's older form and in vLLM's. A fake broadcast
// takes NCCL's place; the store and its messages are real.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <future>
#include <mutex>
#include <thread>

#include "checkpoint/safetensors.h"
#include "core/error.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "rendezvous/trainer_link.h"
#include "serve/small_server.h"
#include "support/device.h"
#include "support/free_port.h"
#include "support/paths.h"
#include "support/trainer.h"

namespace hone::test {
namespace {

using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// Broadcasts in the order in which a test sends them.
class FakeBroadcasts {
 public:
  void send(std::string bytes) {
    const std::lock_guard lock(mutex_);
    sent_.push_back(std::move(bytes));
    arrived_.notify_all();
  }
  [[nodiscard]] std::size_t unread() {
    const std::lock_guard lock(mutex_);
    return sent_.size();
  }
  [[nodiscard]] int joined() const { return joined_; }
  void refuse_to_join() { refuses_ = true; }
  void wait_for_join(int count) const {
    while (joined_ < count) std::this_thread::yield();
  }

  [[nodiscard]] BroadcastBackend backend() {
    return {.make_id = [] { return BroadcastBackend::Id{std::byte{7}}; },
            .join = [this](const BroadcastBackend::Id& id, int rank, int size,
                           const std::function<bool()>&) -> std::unique_ptr<BroadcastRank> {
              if (refuses_) throw Error("nccl", "the fake refuses");
              EXPECT_EQ(id[0], std::byte{7});
              EXPECT_EQ(size, 2);
              ++joined_;
              return std::make_unique<Receiver>(*this, 1 - rank);
            }};
  }

 private:
  class Receiver final : public BroadcastRank {
   public:
    Receiver(FakeBroadcasts& all, int root) : all_(all), root_(root) {}
    void broadcast(std::byte* data, std::size_t bytes, int root, const std::function<bool()>& gives_up) override {
      EXPECT_EQ(root, root_);
      std::unique_lock lock(all_.mutex_);
      while (all_.sent_.empty()) {
        if (gives_up()) throw Error("the fake broadcast", "was given up");
        all_.arrived_.wait_for(lock, std::chrono::milliseconds(1));
      }
      const std::string sent = std::move(all_.sent_.front());
      all_.sent_.pop_front();
      if (sent.size() != bytes) throw Error("the fake broadcast", text_of(bytes, " bytes instead of ", sent.size()));
      test_device().upload(data, sent.data(), bytes);
    }

   private:
    FakeBroadcasts& all_;
    int root_;
  };

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::string> sent_;
  std::atomic<int> joined_ = 0;
  std::atomic<bool> refuses_ = false;
};

SmallServerOptions options_with(FakeBroadcasts& broadcasts) {
  SmallServerOptions options;
  options.allow_weight_updates = true;
  options.max_model_len = 4000;
  options.broadcasts = broadcasts.backend();
  return options;
}

struct Sent {
  std::string name;
  std::vector<std::int64_t> shape;
  std::string bytes;
};

// The tensors of the server's model with the random weights of a seed, as a trainer sends them.
std::vector<Sent> tensors_of(const SmallServer& server, std::uint64_t seed) {
  const TemporaryDirectory folder;
  server.write_weights(folder.path(), seed);
  const SafetensorsFile file(folder.path() / "model.safetensors");
  std::vector<Sent> tensors;
  for (const StoredTensor& tensor : file.tensors()) {
    tensors.push_back(
        {tensor.name, tensor.shape, {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()}});
  }
  return tensors;
}

Request a_request(const SmallServer& server, std::int64_t max_tokens = 20) {
  return {server.model().tokenizer.encode("What is the answer? The answer is 1 + 2."),
          {.temperature = 1.0, .max_tokens = max_tokens, .seed = 7}};
}

RawResponse complete(const SmallServer& server, const Request& request) {
  return server.post("/v1/completions", {{"prompt", request.prompt},
                                         {"max_tokens", request.sampling.max_tokens},
                                         {"temperature", 1},
                                         {"seed", request.sampling.seed},
                                         {"ignore_eos", true},
                                         {"return_token_ids", true}});
}

std::vector<TokenId> tokens_in(const RawResponse& response) {
  EXPECT_EQ(response.status, 200) << response.body;
  return Json::parse(response.body)["choices"][0]["token_ids"].get<std::vector<TokenId>>();
}

Json announcement(const std::vector<Sent>& tensors) {
  Json info{{"names", Json::array()}, {"dtype_names", Json::array()}, {"shapes", Json::array()}};
  for (const Sent& tensor : tensors) {
    info["names"].push_back(tensor.name);
    info["dtype_names"].push_back("float32");
    info["shapes"].push_back(tensor.shape);
  }
  return info;
}

// TRL's client of version 0.16 to 1.10: rank 1 of a store that the server hosts.
class OlderTrainer {
 public:
  explicit OlderTrainer(const SmallServer& server, FakeBroadcasts& broadcasts)
      : server_(server), broadcasts_(broadcasts), port_(free_port()) {
    const RawResponse response = server.post(
        "/init_communicator/", {{"host", "0.0.0.0"}, {"port", port_}, {"world_size", 2}, {"client_device_uuid", "x"}});
    EXPECT_EQ(response.status, 200) << response.body;
    const int joined = broadcasts.joined();
    store_ = std::make_unique<StoreClient>("127.0.0.1", port_, soon());
    (void)store_->add("init/", 1, soon());
    EXPECT_EQ(unique_id_from_pickle(store_->get("/broadcast_from/0/0", soon()))[0], std::byte{7});
    broadcasts.wait_for_join(joined + 1);
  }

  [[nodiscard]] RawResponse announce(const std::string& name, const std::string& dtype, const Json& shape) const {
    return server_.post("/update_named_param/", {{"name", name}, {"dtype", dtype}, {"shape", shape}});
  }
  void send(const Sent& tensor) {
    const RawResponse response = announce(tensor.name, "torch.float32", tensor.shape);
    EXPECT_EQ(response.status, 200) << response.body;
    broadcasts_.send(tensor.bytes);
    trainer_barrier(*store_, ++barriers_);
  }
  void leave() { store_.reset(); }

 private:
  const SmallServer& server_;
  FakeBroadcasts& broadcasts_;
  std::uint16_t port_;
  std::unique_ptr<StoreClient> store_;
  int barriers_ = 0;
};

TEST(Transfer, AnOlderTrainerReplacesAllWeights) {
  FakeBroadcasts broadcasts;
  SmallServer server(options_with(broadcasts));
  const Request request = a_request(server);
  EXPECT_EQ(tokens_in(complete(server, request)), server.generated(request, 1).tokens);
  OlderTrainer trainer(server, broadcasts);
  for (const std::uint64_t seed : {2, 3}) {
    for (const Sent& tensor : tensors_of(server, seed)) trainer.send(tensor);
    EXPECT_EQ(server.post("/reset_prefix_cache/", Json::object()).status, 200);
    EXPECT_EQ(tokens_in(complete(server, request)), server.generated(request, seed).tokens);
    EXPECT_EQ(server.resident().version(), static_cast<std::int64_t>(seed) - 1);
  }
  EXPECT_EQ(server.post("/close_communicator/", Json::object()).status, 200);
  const RawResponse closed = trainer.announce("model.norm.weight", "torch.float32", {32});
  EXPECT_EQ(closed.status, 409);
  EXPECT_THAT(closed.body, HasSubstr("there is no communicator"));
}

TEST(Transfer, RequestsFinishBeforeAnUpdateAndWaitForItsEnd) {
  FakeBroadcasts broadcasts;
  SmallServer server(options_with(broadcasts));
  const Request longer = a_request(server, 2000);
  const Request request = a_request(server);
  OlderTrainer trainer(server, broadcasts);
  auto running = std::async(std::launch::async, [&] { return complete(server, longer); });
  while (fetch(server.port(), "GET", "/metrics")
                 .body.find("num_requests_running{model_name=\"small\",engine=\"0\"} 1\n") == std::string::npos &&
         running.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
  }
  // A part of the weights only, so that the update is open until the trainer ends it.
  const std::vector<Sent> tensors = tensors_of(server, 2);
  for (std::size_t i = 0; i + 1 < tensors.size(); ++i) trainer.send(tensors[i]);
  EXPECT_EQ(tokens_in(running.get()), server.generated(longer, 1).tokens) << "it began with the old weights";
  std::atomic<bool> ended = false;
  auto waiting = std::async(std::launch::async, [&] {
    const RawResponse response = complete(server, request);
    EXPECT_TRUE(ended) << "a request ran while weights were old and new";
    return response;
  });
  for (std::size_t i = 0; i + 1 < tensors.size(); ++i) trainer.send(tensors[i]);  // while the request arrives
  ended = true;
  trainer.send(tensors.back());  // it ends the update, because all have come
  EXPECT_EQ(tokens_in(waiting.get()), server.generated(request, 2).tokens);
}

TEST(Transfer, AnAnnouncementThatDoesNotFitChangesNothing) {
  FakeBroadcasts broadcasts;
  SmallServer server(options_with(broadcasts));
  const Request request = a_request(server);
  const auto refusal = [&](const RawResponse& response) {
    EXPECT_EQ(response.status, 400) << response.body;
    EXPECT_EQ(tokens_in(complete(server, request)), server.generated(request, 1).tokens);
    return response.body;
  };
  OlderTrainer trainer(server, broadcasts);
  EXPECT_THAT(refusal(trainer.announce("model.other", "torch.float32", {32})),
              HasSubstr("model.other: is not a tensor"));
  EXPECT_THAT(refusal(trainer.announce("model.norm.weight", "torch.float32", {33})), HasSubstr("is [33], but"));
  EXPECT_THAT(refusal(trainer.announce("model.norm.weight", "torch.int64", {32})), HasSubstr("has the type I64"));
  EXPECT_THAT(refusal(trainer.announce("model.norm.weight", "torch.double", {32})), HasSubstr("float32 or float64"));
  EXPECT_THAT(refusal(trainer.announce("model.norm.weight", "torch.float32", {-32})), HasSubstr("shape"));
  EXPECT_THAT(refusal(trainer.announce("model.norm.weight", "torch.float32", "32")), HasSubstr("shape"));
  for (const Sent& tensor : tensors_of(server, 2)) trainer.send(tensor);
  EXPECT_EQ(tokens_in(complete(server, request)), server.generated(request, 2).tokens);
}

TEST(Transfer, AnUpdateThatItsTrainerLeavesMustBeRepeated) {
  FakeBroadcasts broadcasts;
  SmallServer server(options_with(broadcasts));
  const Request request = a_request(server);
  const std::vector<Sent> tensors = tensors_of(server, 2);
  {
    OlderTrainer trainer(server, broadcasts);
    trainer.send(tensors[0]);
    auto waiting = std::async(std::launch::async, [&] { return complete(server, request); });
    trainer.leave();
    const RawResponse response = waiting.get();
    EXPECT_EQ(response.status, 503) << response.body;
    const RawResponse late = trainer.announce("model.norm.weight", "torch.float32", {32});
    EXPECT_EQ(late.status, 409);
    EXPECT_THAT(late.body, HasSubstr("the trainer has left"));
  }
  OlderTrainer trainer(server, broadcasts);
  for (const Sent& tensor : tensors) trainer.send(tensor);
  EXPECT_EQ(tokens_in(complete(server, request)), server.generated(request, 2).tokens);
}

// vLLM's weight transfer: rank 0, which hosts the store.
class Trainer {
 public:
  Trainer(const SmallServer& server, FakeBroadcasts& broadcasts, const Json& more = Json::object())
      : server_(server), broadcasts_(broadcasts), store_("127.0.0.1", 0) {
    Json info{{"master_address", "127.0.0.1"}, {"master_port", store_.port()}, {"rank_offset", 1}, {"world_size", 2}};
    info.update(more);
    auto call = std::async(std::launch::async,
                           [&] { return server.post("/init_weight_transfer_engine", {{"init_info", info}}); });
    store_.set("/broadcast_from/0/0", pickle_of(UniqueId{std::byte{7}}));
    EXPECT_EQ(call.get().status, 200);
    EXPECT_EQ(store_.get("init/"), "1");
  }

  [[nodiscard]] RawResponse call(const char* path) const { return server_.post(path, Json::object()); }
  // Sends tensors, each as one broadcast or packed up to a limit.
  [[nodiscard]] RawResponse send(const std::vector<Sent>& tensors, Json info, std::size_t limit) const {
    std::string packed;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      packed += tensors[i].bytes;
      if (packed.size() > limit || i + 1 == tensors.size()) broadcasts_.send(std::exchange(packed, {}));
    }
    return server_.post("/update_weights", {{"update_info", std::move(info)}});
  }

 private:
  const SmallServer& server_;
  FakeBroadcasts& broadcasts_;
  StoreServer store_;
};

TEST(Transfer, ATrainerSendsPackedAndSingleTensors) {
  FakeBroadcasts broadcasts;
  SmallServer server(options_with(broadcasts));
  const Request request = a_request(server);
  const Json info = Json::parse(fetch(server.port(), "GET", "/server_info?config_format=json").body)["vllm_config"];
  EXPECT_EQ(info["weight_transfer_config"]["backend"], "nccl");
  constexpr std::size_t kLimit = 5000;  // bytes: several buffers of several tensors
  // `packed` is in the call of vLLM before 0.28, then in that of the beginning.
  const Trainer older(server, broadcasts);
  std::vector<Sent> tensors = tensors_of(server, 2);
  Json packed = announcement(tensors);
  packed.update({{"packed", true}, {"packed_buffer_size_bytes", kLimit}, {"packed_num_buffers", 2}});
  EXPECT_EQ(older.call("/start_weight_update").status, 200);
  EXPECT_EQ(older.send(tensors, packed, kLimit).status, 200);
  EXPECT_EQ(Json::parse(older.call("/finish_weight_update").body)["weight_version"], 1);
  EXPECT_EQ(tokens_in(complete(server, request)), server.generated(request, 2).tokens);

  const Trainer newer(server, broadcasts, {{"packed", true}, {"packed_buffer_size_bytes", kLimit}});
  tensors = tensors_of(server, 3);
  EXPECT_EQ(newer.call("/start_weight_update").status, 200);
  EXPECT_EQ(newer.send(tensors, announcement(tensors), kLimit).status, 200);
  EXPECT_EQ(newer.call("/finish_weight_update").status, 200);
  EXPECT_EQ(tokens_in(complete(server, request)), server.generated(request, 3).tokens);
  // The same tensors again, which an empty announcement means.
  tensors = tensors_of(server, 4);
  EXPECT_EQ(newer.call("/start_weight_update").status, 200);
  EXPECT_EQ(newer.send(tensors, announcement({}), kLimit).status, 200);
  EXPECT_EQ(newer.call("/finish_weight_update").status, 200);
  EXPECT_EQ(tokens_in(complete(server, request)), server.generated(request, 4).tokens);

  // Without a limit tensors come one by one; without the calls around it, an announcement is an update.
  const Trainer single(server, broadcasts);
  tensors = tensors_of(server, 5);
  EXPECT_EQ(Json::parse(single.send(tensors, announcement(tensors), 0).body)["weight_version"], 4);
  EXPECT_EQ(tokens_in(complete(server, request)), server.generated(request, 5).tokens);
}

TEST(Transfer, WhatDoesNotFitIsReceivedAndDropped) {
  FakeBroadcasts broadcasts;
  SmallServer server(options_with(broadcasts));
  const Request request = a_request(server);
  const Trainer trainer(server, broadcasts);
  const std::vector<Sent> tensors = tensors_of(server, 2);
  Json wrong = announcement(tensors);
  wrong["names"][3] = "model.other";
  EXPECT_EQ(trainer.call("/start_weight_update").status, 200);
  const RawResponse refused = trainer.send(tensors, wrong, 0);
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("model.other: is not a tensor"));
  EXPECT_EQ(broadcasts.unread(), 0U) << "the trainer would wait for its broadcasts";
  EXPECT_EQ(trainer.call("/finish_weight_update").status, 200);
  EXPECT_EQ(server.resident().version(), 0);
  EXPECT_EQ(tokens_in(complete(server, request)), server.generated(request, 1).tokens);
  // After a tensor that fits, a refused one leaves weights that are old and new.
  const std::vector<Sent> one(tensors.begin(), tensors.begin() + 1);
  EXPECT_EQ(trainer.call("/start_weight_update").status, 200);
  EXPECT_EQ(trainer.send(one, announcement(one), 0).status, 200);
  EXPECT_EQ(trainer.call("/sleep").status, 409) << "the weights are changing";
  wrong = announcement(one);
  wrong["names"][0] = "model.other";
  EXPECT_EQ(trainer.send(one, wrong, 0).status, 400);
  const RawResponse incomplete = trainer.call("/finish_weight_update");
  EXPECT_EQ(incomplete.status, 500);
  EXPECT_THAT(incomplete.body, HasSubstr("the weights are incomplete"));
  EXPECT_EQ(complete(server, request).status, 503);
  EXPECT_EQ(trainer.send(tensors, announcement(tensors), 0).status, 200);
  EXPECT_EQ(tokens_in(complete(server, request)), server.generated(request, 2).tokens);
  for (const Json& info : {Json{{"names", {"a"}}}, Json{{"names", "a"}},
                           Json{{"names", {3}}, {"dtype_names", {"float32"}}, {"shapes", {{1}}}},
                           Json{{"names", {"a"}}, {"dtype_names", {"float32"}}, {"shapes", {1}}},
                           Json{{"names", Json::array()}, {"more", 1}}})
    EXPECT_EQ(server.post("/update_weights", {{"update_info", info}}).status, 400) << info;
}

TEST(Transfer, AnUpdateThatFailedIsNotFinished) {
  FakeBroadcasts broadcasts;
  SmallServer server(options_with(broadcasts));
  const Trainer trainer(server, broadcasts);
  std::vector<Sent> tensors = tensors_of(server, 2);
  EXPECT_EQ(trainer.call("/start_weight_update").status, 200);
  tensors[3].bytes += "more";
  const RawResponse failed = trainer.send(tensors, announcement(tensors), 0);
  EXPECT_EQ(failed.status, 400);
  EXPECT_THAT(failed.body, HasSubstr("instead of"));
  const RawResponse finished = trainer.call("/finish_weight_update");
  EXPECT_EQ(finished.status, 409);
  EXPECT_THAT(finished.body, HasSubstr("the communicator has failed: the fake broadcast"));
}

TEST(Transfer, AnEmptyAnnouncementNamesTheTensorsOfItsCommunicator) {
  FakeBroadcasts broadcasts;
  SmallServer server(options_with(broadcasts));
  const std::vector<Sent> tensors = tensors_of(server, 2);
  const Trainer first(server, broadcasts);
  EXPECT_EQ(first.send(tensors, announcement(tensors), 0).status, 200);
  EXPECT_EQ(first.send(tensors, announcement({}), 0).status, 200);
  const Trainer second(server, broadcasts);
  const RawResponse refused = second.send(tensors, announcement({}), 0);
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("update_info.names"));
  EXPECT_EQ(server.resident().version(), 2);
}

TEST(Transfer, AnAnnouncementHasAModeAndNoOtherLayout) {
  FakeBroadcasts broadcasts;
  SmallServer server(options_with(broadcasts));
  const Trainer trainer(server, broadcasts);
  const std::vector<Sent> tensors = tensors_of(server, 2);
  Json info = announcement(tensors);
  for (const auto& tensor : tensors) broadcasts.send(tensor.bytes);
  auto running = std::async(std::launch::async, [&] { return complete(server, a_request(server, 3000)); });
  while (fetch(server.port(), "GET", "/metrics")
                 .body.find("num_requests_running{model_name=\"small\",engine=\"0\"} 1\n") == std::string::npos &&
         running.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
  }
  const Json call{{"update_info", info}, {"mode", "abort"}};
  EXPECT_EQ(server.post("/update_weights", call).status, 200);
  EXPECT_EQ(Json::parse(running.get().body)["choices"][0]["finish_reason"], "abort");

  info["is_checkpoint_format"] = false;
  EXPECT_THAT(server.post("/update_weights", {{"update_info", info}}).body, HasSubstr("is_checkpoint_format"));
  EXPECT_EQ(server.post("/start_weight_update", {{"is_checkpoint_format", false}}).status, 400);
  EXPECT_EQ(server.post("/start_weight_update", {{"is_checkpoint_format", true}}).status, 200);
}

TEST(Transfer, AnIdMayComeWithoutAStore) {
  FakeBroadcasts broadcasts;
  SmallServer server(options_with(broadcasts));
  std::string id(128, '\0');
  id[0] = 7;
  const auto init = [&](const Json& info) {
    return server.post("/init_weight_transfer_engine", {{"init_info", info}});
  };
  const std::string base64 = encode_base64(id);
  EXPECT_EQ(init({{"nccl_unique_id_b64", base64}, {"rank_offset", 1}, {"world_size", 2}}).status, 200);
  const std::vector<Sent> tensors = tensors_of(server, 2);
  for (const Sent& tensor : tensors) broadcasts.send(tensor.bytes);
  EXPECT_EQ(server.post("/update_weights", {{"update_info", announcement(tensors)}}).status, 200);
  const Request request = a_request(server);
  EXPECT_EQ(tokens_in(complete(server, request)), server.generated(request, 2).tokens);
  EXPECT_THAT(init({{"nccl_unique_id_b64", base64}, {"rank_offset", 3}, {"world_size", 3}}).body,
              HasSubstr("rank_offset: is 3 with world_size 3"));
  EXPECT_THAT(init({{"nccl_unique_id_b64", base64}, {"rank_offset", 0}, {"world_size", 2}}).body,
              HasSubstr("the trainer is rank 0"));
  EXPECT_THAT(init({{"nccl_unique_id_b64", "AAAA"}}).body, HasSubstr("128 bytes"));
  EXPECT_THAT(init({{"master_address", "127.0.0.1"}}).body, HasSubstr("names no trainer"));
  broadcasts.refuse_to_join();
  EXPECT_THAT(init({{"nccl_unique_id_b64", base64}}).body, HasSubstr("the fake refuses"));
  EXPECT_THAT(server.post("/start_weight_update", Json::object()).body, HasSubstr("the fake refuses"));
  EXPECT_EQ(tokens_in(complete(server, request)), server.generated(request, 2).tokens);
}

TEST(Transfer, AServerWithoutNcclSaysSo) {
  SmallServerOptions options;
  options.allow_weight_updates = true;
  SmallServer server(options);
  for (const char* path : {"/init_communicator/", "/update_named_param/", "/init_weight_transfer_engine",
                           "/start_weight_update", "/finish_weight_update"}) {
    const RawResponse refused = server.post(path, Json::object());
    EXPECT_EQ(refused.status, 501) << path;
    EXPECT_THAT(refused.body, HasSubstr("which needs a server on GPUs"));
  }
  EXPECT_EQ(server.post("/update_weights", {{"update_info", announcement({})}}).status, 501);
  EXPECT_TRUE(
      Json::parse(fetch(server.port(), "GET", "/server_info").body)["vllm_config"]["weight_transfer_config"].is_null());
}

}  // namespace
}  // namespace hone::test
