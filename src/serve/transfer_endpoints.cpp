// Endpoints through which a running trainer sends weights over NCCL: those of `trl vllm-serve` (init_communicator,
// update_named_param) and of vLLM's weight transfer (init_weight_transfer_engine, start_weight_update, update_weights
// with names, finish_weight_update).
// Sources: trl/scripts/vllm_serve.py of TRL 1.8, trl/generation/vllm_client.py of TRL 1.16,
// vllm/distributed/weight_transfer (nccl_common.py, nccl_engine.py, packed_tensor.py) of vLLM 0.33.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "core/json_value.h"
#include "core/log.h"
#include "core/strings.h"
#include "serve/control_actions.h"
#include "serve/endpoints.h"
#include "serve/request_error.h"
#include "serve/request_parameters.h"
#include "serve/weight_transfer.h"

namespace hone {
namespace {

constexpr std::int64_t kMostPort = 65535;
constexpr std::int64_t kMostPackedBytes = std::int64_t{1} << 34;
constexpr std::size_t kMostTensors = 1'000'000;
constexpr std::int64_t kMostExtent = std::int64_t{1} << 40;

std::shared_ptr<WeightTransfer> transfer_of(const Service& service, const ServerRequest& request) {
  if (service.options().transfer) return service.options().transfer;
  throw RequestError({},
                     text_of(request.path(),
                             " moves weights by NCCL, which needs a server on GPUs without data_parallel_size, and "
                             "without FP8 weights if it has tensor_parallel_size"),
                     "POST /update_weights {\"update_info\": {\"weights_path\": FOLDER}} loads a folder, which may be "
                     "in /dev/shm",
                     501);
}

// The type that torch calls "torch.bfloat16", or "bfloat16".
StoredType type_named(const std::string& param, std::string_view name) {
  constexpr std::array<std::pair<std::string_view, StoredType>, 12> kTypes{{{"float32", StoredType::kF32},
                                                                            {"bfloat16", StoredType::kBf16},
                                                                            {"float16", StoredType::kF16},
                                                                            {"float64", StoredType::kF64},
                                                                            {"float8_e4m3fn", StoredType::kF8E4m3},
                                                                            {"float8_e5m2", StoredType::kF8E5m2},
                                                                            {"bool", StoredType::kBoolean},
                                                                            {"uint8", StoredType::kU8},
                                                                            {"int8", StoredType::kI8},
                                                                            {"int16", StoredType::kI16},
                                                                            {"int32", StoredType::kI32},
                                                                            {"int64", StoredType::kI64}}};
  constexpr std::string_view kPrefix = "torch.";
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  const auto* const found = std::ranges::find(kTypes, name, &std::pair<std::string_view, StoredType>::first);
  if (found == kTypes.end())
    throw RequestError(param, text_of("is \"", name, "\""), "expected bfloat16, float16, float32 or float64");
  return found->second;
}

TensorNotice notice_of(const Json& name, const Json& type, const Json& shape, const std::string& prefix) {
  if (!name.is_string()) RequestParameters::refuse(prefix + "name", name, "a text");
  if (!type.is_string()) RequestParameters::refuse(prefix + "dtype", type, "a text");
  if (!shape.is_array() || shape.size() > 8) RequestParameters::refuse(prefix + "shape", shape, "up to 8 numbers");
  TensorNotice notice{
      .name = name.get<std::string>(), .type = type_named(prefix + "dtype", type.get<std::string>()), .shape = {}};
  for (const Json& extent : shape) {
    notice.shape.push_back(RequestParameters::checked_integer(extent, prefix + "shape", 0, kMostExtent));
  }
  return notice;
}

std::vector<TensorNotice> notices_of(const Json& names, const Json& types, const Json& shapes) {
  for (const Json* list : {&names, &types, &shapes}) {
    if (!list->is_array() || list->size() > kMostTensors || list->size() != names.size())
      throw RequestError("update_info", "has lists names, dtype_names and shapes of different lengths",
                         "one entry of each for every tensor");
  }
  std::vector<TensorNotice> notices;
  notices.reserve(names.size());
  for (std::size_t i = 0; i < names.size(); ++i)
    notices.push_back(notice_of(names[i], types[i], shapes[i], "update_info."));
  return notices;
}

BroadcastBackend::Id unique_id_of(const std::string& base64) {
  BroadcastBackend::Id id{};
  const std::optional<std::string> bytes = decode_base64(base64);
  if (!bytes || bytes->size() != id.size())
    throw RequestError("init_info.nccl_unique_id_b64", "is not the base64 of 128 bytes");
  std::memcpy(id.data(), bytes->data(), id.size());
  return id;
}

// Reads how the trainer packs tensors. Returns the limit of its buffers in bytes; unset: tensors come one by one.
std::optional<std::size_t> packed_limit_of(RequestParameters& parameters) {
  bool packed = false;
  auto bytes = static_cast<std::int64_t>(kPackedBufferBytes);
  parameters.boolean("packed", packed);
  parameters.integer("packed_buffer_size_bytes", bytes, 1, kMostPackedBytes);
  parameters.ignore("packed_num_buffers");  // on this side there is one
  return packed ? std::optional(static_cast<std::size_t>(bytes)) : std::nullopt;
}

TrainerAddress address_of(RequestParameters& parameters) {
  TrainerAddress address;
  std::int64_t port = 0;
  std::int64_t rank_offset = 1;
  std::int64_t world_size = 2;
  std::string id;
  parameters.integer("rank_offset", rank_offset, 0, kMostPort);
  parameters.integer("world_size", world_size, 0, kMostPort);
  address.packed = packed_limit_of(parameters);
  const bool has_host = parameters.text("master_address", address.host);
  const bool has_port = parameters.integer("master_port", port, 1, kMostPort);
  if (parameters.text("nccl_unique_id_b64", id)) address.id = unique_id_of(id);
  parameters.refuse_others();
  if (address.id.has_value() == (has_host && has_port))
    throw RequestError("init_info", "names no trainer", "give master_address and master_port, or nccl_unique_id_b64");
  if (rank_offset < 1 || rank_offset >= world_size)
    throw RequestError("init_info.rank_offset", text_of("is ", rank_offset, " with world_size ", world_size),
                       "the trainer is rank 0, and this server one of the others");
  address.rank = static_cast<int>(rank_offset);
  address.size = static_cast<int>(world_size);
  address.port = static_cast<std::uint16_t>(port);
  return address;
}

// Runs the action that joins a communicator. Called on threads of the transfer, which must not be its last owners.
void submit_join(EngineLoop& loop, const std::weak_ptr<WeightTransfer>& transfer,
                 const std::function<void(const std::exception*)>& done) {
  const auto join = [transfer](ResidentModel&) {
    if (const auto joining = transfer.lock()) joining->join();
  };
  const EngineAction action{.under_way = UnderWay::kKeep, .act = join, .done = done};
  if (loop.submit(action) == Admission::kAccepted) return;
  const RequestError closing({}, "the server shuts down", {}, 503);
  done(&closing);
}

// Reports what goes wrong after the call that began it has been answered.
void report(const std::exception* error) {
  if (error != nullptr) log_warning(text_of("weights of a trainer: ", error->what()));
}

}  // namespace

void answer_world_size(const Service&, const ServerRequest&, const std::shared_ptr<ServerReply>& reply) {
  reply->send({.status = 200, .body = json_text({{"world_size", 1}})});
}

// Answers with the part of vLLM's configuration that TRL's clients read.
void answer_server_info(const Service& service, const ServerRequest&, const std::shared_ptr<ServerReply>& reply) {
  Json transfer;
  if (service.options().transfer) transfer = {{"backend", "nccl"}};
  const Json config{{"model_config",
                     {{"model", service.model().names.front()},
                      {"dtype", service.model().dtype == DType::kBf16 ? "torch.bfloat16" : "torch.float32"},
                      {"max_model_len", service.model().max_model_len},
                      {"logprobs_mode", "processed_logprobs"}}},
                    {"parallel_config", {{"tensor_parallel_size", 1}, {"data_parallel_size", 1}}},
                    {"lora_config", nullptr},
                    {"weight_transfer_config", std::move(transfer)}};
  reply->send({.status = 200, .body = json_text({{"vllm_config", config}})});
}

void answer_init_communicator(const Service& service, const ServerRequest& request,
                              const std::shared_ptr<ServerReply>& reply) {
  const std::shared_ptr<WeightTransfer> transfer = transfer_of(service, request);
  const Json body = control_parameters(request);
  RequestParameters parameters(body);
  std::int64_t port = 0;
  std::int64_t world_size = 2;
  if (!parameters.integer("port", port, 0, kMostPort)) throw RequestError("port", "is missing");
  parameters.integer("world_size", world_size, 0, kMostPort);
  for (const char* key : {"host", "client_device_uuid"})
    parameters.ignore(key);  // the store listens where the server does
  parameters.refuse_others();
  if (world_size != 2)
    throw RequestError("world_size", text_of("is ", world_size), "this server is rank 0 of 2, and the trainer rank 1");
  const auto host = [transfer, port, &loop = service.loop()](ResidentModel& resident) {
    transfer->host(static_cast<std::uint16_t>(port), resident, loop,
                   [weak = std::weak_ptr(transfer), &loop] { submit_join(loop, weak, report); });
  };
  act(service, reply, UnderWay::kKeep, host, fixed({{"message", "Request received, initializing communicator"}}));
}

void answer_update_named_param(const Service& service, const ServerRequest& request,
                               const std::shared_ptr<ServerReply>& reply) {
  const std::shared_ptr<WeightTransfer> transfer = transfer_of(service, request);
  const Json body = control_parameters(request);
  RequestParameters parameters(body);
  const TensorNotice notice =
      notice_of(parameters.value("name"), parameters.value("dtype"), parameters.value("shape"), {});
  parameters.refuse_others();
  transfer->require_communicator();
  transfer->check(notice);
  const auto receive = [transfer, notice, &loop = service.loop()](ResidentModel& resident) {
    transfer->receive_one(notice, resident, loop);
  };
  // The client broadcasts when it has this answer.
  service.submit(EngineAction{.under_way = UnderWay::kWait, .act = receive, .done = report});
  reply->send({.status = 200, .body = json_text({{"message", "Request received, updating named parameter"}})});
}

void answer_close_communicator(const Service& service, const ServerRequest&,
                               const std::shared_ptr<ServerReply>& reply) {
  const std::shared_ptr<WeightTransfer> transfer = service.options().transfer;
  if (!transfer) return reply->send({.status = 200, .body = json_text({{"message", "there is no communicator"}})});
  const auto close = [transfer, &loop = service.loop()](ResidentModel& resident) { transfer->close(resident, loop); };
  act(service, reply, UnderWay::kKeep, close, fixed({{"message", "Request received, closing communicator"}}));
}

void answer_init_transfer(const Service& service, const ServerRequest& request,
                          const std::shared_ptr<ServerReply>& reply) {
  const std::shared_ptr<WeightTransfer> transfer = transfer_of(service, request);
  const Json body = control_parameters(request);
  RequestParameters parameters(body);
  const Json& info = parameters.value("init_info");
  parameters.refuse_others();
  if (!info.is_object()) RequestParameters::refuse("init_info", info, "an object with master_address and master_port");
  RequestParameters inner(info, "init_info.");
  const TrainerAddress address = address_of(inner);
  const std::function<Json()> answer = fixed({{"message", "Weight transfer initialized"}});
  const auto joined = [reply, answer](const std::exception* error) { answer_action(*reply, error, answer); };
  const auto connect = [transfer, address, joined, &loop = service.loop()](ResidentModel& resident) {
    transfer->connect(address, resident, loop,
                      [weak = std::weak_ptr(transfer), joined, &loop](const std::exception* error) {
                        if (error != nullptr) return joined(error);
                        submit_join(loop, weak, joined);
                      });
  };
  const auto refused = [joined](const std::exception* error) {
    if (error != nullptr) joined(error);
  };
  service.submit(EngineAction{.under_way = UnderWay::kKeep, .act = connect, .done = refused});
}

void answer_start_update(const Service& service, const ServerRequest& request,
                         const std::shared_ptr<ServerReply>& reply) {
  const std::shared_ptr<WeightTransfer> transfer = transfer_of(service, request);
  const Json body = control_parameters(request);
  RequestParameters parameters(body);
  parameters.only("is_checkpoint_format", true);
  parameters.refuse_others();
  const auto begin = [transfer, &loop = service.loop()](ResidentModel& resident) { transfer->begin(resident, loop); };
  act(service, reply, UnderWay::kWait, begin, fixed({{"message", "Weight update started"}}));
}

void receive_weights(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply,
                     const Json& info, UnderWay under_way) {
  const std::shared_ptr<WeightTransfer> transfer = transfer_of(service, request);
  RequestParameters parameters(info, "update_info.");
  const std::vector<TensorNotice> notices =
      notices_of(parameters.value("names"), parameters.value("dtype_names"), parameters.value("shapes"));
  const std::optional<std::size_t> limit = packed_limit_of(parameters);
  parameters.only("is_checkpoint_format", true);
  parameters.refuse_others();
  transfer->require_communicator();
  const auto receive = [transfer, notices, limit, &loop = service.loop()](ResidentModel& resident) {
    transfer->receive_all(notices, limit, resident, loop);
  };
  act_versioned(service, reply, under_way, receive,
                [](std::int64_t version) { return Json{{"message", "Weights updated"}, {"weight_version", version}}; });
}

void answer_finish_update(const Service& service, const ServerRequest& request,
                          const std::shared_ptr<ServerReply>& reply) {
  const std::shared_ptr<WeightTransfer> transfer = transfer_of(service, request);
  const Json body = control_parameters(request);
  RequestParameters(body).refuse_others();
  const auto finish = [transfer, &loop = service.loop()](ResidentModel& resident) {
    transfer->require_communicator();  // an update that was given up has not succeeded
    transfer->finish(resident, loop);
  };
  act_versioned(service, reply, UnderWay::kKeep, finish, [](std::int64_t version) {
    return Json{{"message", "Weight update finished"}, {"weight_version", version}};
  });
}

}  // namespace hone
