// Endpoints that move weights, give memory back, pause and continue, in the forms of vLLM, SGLang and TRL.
// Sources: vllm/entrypoints/serve/dev (rlhf, sleep, rpc), https://docs.sglang.ai/advanced_features/sglang_for_rl.html,
// trl/generation/vllm_client.py, trl/scripts/vllm_serve.py
#include <utility>

#include "core/json_value.h"
#include "core/strings.h"
#include "serve/answer_head.h"
#include "serve/control_actions.h"
#include "serve/endpoints.h"
#include "serve/request_error.h"
#include "serve/request_parameters.h"

namespace hone {
namespace {

// Replaces the weights by those of `folder`.
void update(const Service& service, const std::shared_ptr<ServerReply>& reply, const std::string& folder,
            UnderWay under_way, std::function<Json(std::int64_t version)> answer) {
  const auto action = [folder](ResidentModel& resident) {
    const bool was_whole = resident.has_whole_weights();
    try {
      resident.update(folder);
    } catch (const Error& error) {
      if (!was_whole || resident.has_whole_weights()) throw;  // nothing has changed
      throw RequestError({}, text_of("the weights are incomplete: ", error.what()), "repeat the update", 500);
    }
  };
  act_versioned(service, reply, under_way, action, std::move(answer));
}

}  // namespace

void answer_sleep(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply) {
  const Json body = control_parameters(request);
  RequestParameters parameters(body);
  std::int64_t level = 1;
  parameters.integer("level", level, 1, 2);
  const UnderWay under_way = under_way_of(parameters, UnderWay::kAbort);
  parameters.refuse_others();
  if (under_way == UnderWay::kKeep)
    throw RequestError("mode", "is \"keep\", but sleep gives back the keys and values of requests under way",
                       "use wait or abort");
  const auto sleep = [level, transfer = service.options().transfer](ResidentModel& resident) {
    if (transfer && transfer->is_open())
      throw RequestError({}, "a trainer is updating the weights", "sleep when its update has ended", 409);
    if (!resident.is_asleep() && resident.engine().has_work())
      throw RequestError("mode", "is \"wait\", but requests are paused", "resume before, or use abort", 409);
    resident.sleep(level == 1 ? SleepLevel::kKeepWeights : SleepLevel::kDropWeights);
  };
  act(service, reply, under_way, sleep, fixed(nullptr));
}

void answer_wake_up(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply) {
  const Json body = control_parameters(request);
  RequestParameters parameters(body);
  const Json& tags = parameters.value("tags");
  bool weights = tags.is_null();
  bool cache = tags.is_null();
  for (const Json& tag : tags.is_array() ? tags : tags.is_null() ? Json::array() : Json::array({tags})) {
    if (tag == "weights")
      weights = true;
    else if (tag == "kv_cache")
      cache = true;
    else
      RequestParameters::refuse("tags", tag, "weights or kv_cache");
  }
  parameters.refuse_others();
  const auto wake = [weights, cache](ResidentModel& resident) {
    if (weights) resident.wake_weights();
    if (cache) resident.wake_cache();
  };
  act(service, reply, UnderWay::kKeep, wake, fixed(nullptr));
}

void answer_is_sleeping(const Service& service, const ServerRequest&, const std::shared_ptr<ServerReply>& reply) {
  reply->send({.status = 200, .body = json_text({{"is_sleeping", service.loop().is_asleep()}})});
}

void answer_pause(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply) {
  const Json body = control_parameters(request);
  RequestParameters parameters(body);
  bool waits = false;
  bool clear_cache = true;
  parameters.boolean("wait_for_inflight_requests", waits);
  parameters.boolean("clear_cache", clear_cache);
  const UnderWay under_way = under_way_of(parameters, waits ? UnderWay::kWait : UnderWay::kAbort);
  parameters.refuse_others();
  const auto pause = [&loop = service.loop(), clear_cache, under_way](ResidentModel& resident) {
    loop.set_paused(true);
    if (clear_cache && under_way != UnderWay::kKeep && !resident.is_asleep()) resident.engine().forget_prefixes();
  };
  act(service, reply, under_way, pause, fixed({{"status", "paused"}}));
}

void answer_resume(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply) {
  const Json body = control_parameters(request);
  RequestParameters(body).refuse_others();
  act(
      service, reply, UnderWay::kKeep, [&loop = service.loop()](ResidentModel&) { loop.set_paused(false); },
      fixed({{"status", "resumed"}}));
}

void answer_is_paused(const Service& service, const ServerRequest&, const std::shared_ptr<ServerReply>& reply) {
  reply->send({.status = 200, .body = json_text({{"is_paused", service.loop().is_paused()}})});
}

void answer_reset_prefix_cache(const Service& service, const ServerRequest& request,
                               const std::shared_ptr<ServerReply>& reply) {
  const Json body = control_parameters(request);
  RequestParameters parameters(body);
  for (const char* key : {"reset_running_requests", "reset_external"}) parameters.only(key, false);
  parameters.refuse_others();
  const auto forget = [transfer = service.options().transfer, &loop = service.loop()](ResidentModel& resident) {
    if (transfer && transfer->is_host()) transfer->finish(resident, loop);  // so ends an update of TRL's older clients
    if (!resident.is_asleep()) resident.engine().forget_prefixes();
  };
  act(service, reply, UnderWay::kKeep, forget, fixed({{"message", "the prefix cache is empty"}}));
}

// {"update_info": {"weights_path": FOLDER}}, or vLLM's form that announces tensors, which come by NCCL.
void answer_update_weights(const Service& service, const ServerRequest& request,
                           const std::shared_ptr<ServerReply>& reply) {
  const Json body = control_parameters(request);
  RequestParameters parameters(body);
  const UnderWay under_way = under_way_of(parameters, UnderWay::kWait);
  const Json& info = parameters.value("update_info");
  parameters.refuse_others();
  if (!info.is_object()) RequestParameters::refuse("update_info", info, "an object with weights_path");
  if (info.contains("names")) return receive_weights(service, request, reply, info, under_way);
  RequestParameters inner(info, "update_info.");
  std::string folder;
  if (!inner.text("weights_path", folder))
    throw RequestError("update_info.weights_path", "is missing", "give the folder of the new weights");
  inner.refuse_others();
  update(service, reply, folder, under_way,
         [](std::int64_t version) { return Json{{"message", "Weights updated"}, {"weight_version", version}}; });
}

void answer_update_from_disk(const Service& service, const ServerRequest& request,
                             const std::shared_ptr<ServerReply>& reply) {
  const Json body = control_parameters(request);
  RequestParameters parameters(body);
  std::string folder;
  bool aborts = false;
  if (!parameters.text("model_path", folder))
    throw RequestError("model_path", "is missing", "give the folder of the new weights");
  parameters.boolean("abort_all_requests", aborts);
  parameters.ignore("flush_cache");  // no key or value outlives its weights
  parameters.only("load_format", nullptr);
  const UnderWay under_way = under_way_of(parameters, aborts ? UnderWay::kAbort : UnderWay::kWait);
  parameters.refuse_others();
  update(service, reply, folder, under_way, [](std::int64_t version) {
    return Json{{"success", true}, {"message", "Succeeded"}, {"weight_version", version}};
  });
}

void answer_collective_rpc(const Service& service, const ServerRequest& request,
                           const std::shared_ptr<ServerReply>& reply) {
  const Json body = control_parameters(request);
  RequestParameters parameters(body);
  std::string method;
  parameters.text("method", method);
  if (method != "reload_weights")
    throw RequestError("method", text_of("\"", method, "\" is not supported"), "expected reload_weights", 501);
  const Json& arguments = parameters.value("kwargs");
  parameters.only("args", Json::array());
  parameters.ignore("timeout");
  parameters.refuse_others();
  if (!arguments.is_object()) RequestParameters::refuse("kwargs", arguments, "an object with weights_path");
  RequestParameters inner(arguments, "kwargs.");
  std::string folder;
  if (!inner.text("weights_path", folder))
    throw RequestError("kwargs.weights_path", "is missing", "give the folder of the new weights");
  inner.refuse_others();
  update(service, reply, folder, UnderWay::kWait,
         [](std::int64_t) { return Json{{"results", Json::array({nullptr})}}; });
}

}  // namespace hone
