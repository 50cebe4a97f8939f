// The endpoints, each a function that answers a request through its reply. They throw RequestError, and Error for
// whatever else is wrong with a request.
#pragma once

#include <memory>

#include "core/json.h"
#include "http/message.h"
#include "serve/service.h"

namespace hone {

using Endpoint = void (*)(const Service& service, const ServerRequest& request,
                          const std::shared_ptr<ServerReply>& reply);

void answer_health(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply);
void answer_openapi(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply);
void answer_version(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply);
void answer_metrics(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply);
void answer_models(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply);
void answer_tokenize(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply);
void answer_detokenize(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply);
void answer_page(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply);
void answer_run_files(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply);
void answer_chat(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply);
void answer_completions(const Service& service, const ServerRequest& request,
                        const std::shared_ptr<ServerReply>& reply);
void answer_messages(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply);
void answer_responses(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply);
void answer_embeddings(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply);
// TRL's form: completions of texts or token ids as token ids.
void answer_generate(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply);
// The same of conversations.
void answer_trl_chat(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply);
// vLLM's endpoints of adapters (adapter_endpoints.cpp).
void answer_load_adapter(const Service& service, const ServerRequest& request,
                         const std::shared_ptr<ServerReply>& reply);
void answer_unload_adapter(const Service& service, const ServerRequest& request,
                           const std::shared_ptr<ServerReply>& reply);
// The following serve clients that move weights (control_endpoints.cpp).
void answer_world_size(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply);
void answer_sleep(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply);
void answer_wake_up(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply);
void answer_is_sleeping(const Service& service, const ServerRequest& request,
                        const std::shared_ptr<ServerReply>& reply);
void answer_pause(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply);
void answer_resume(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply);
void answer_is_paused(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply);
void answer_reset_prefix_cache(const Service& service, const ServerRequest& request,
                               const std::shared_ptr<ServerReply>& reply);
void answer_update_weights(const Service& service, const ServerRequest& request,
                           const std::shared_ptr<ServerReply>& reply);
void answer_update_from_disk(const Service& service, const ServerRequest& request,
                             const std::shared_ptr<ServerReply>& reply);
void answer_collective_rpc(const Service& service, const ServerRequest& request,
                           const std::shared_ptr<ServerReply>& reply);
// The following serve trainers that send weights over NCCL (transfer_endpoints.cpp). TRL's older form:
void answer_init_communicator(const Service& service, const ServerRequest& request,
                              const std::shared_ptr<ServerReply>& reply);
void answer_update_named_param(const Service& service, const ServerRequest& request,
                               const std::shared_ptr<ServerReply>& reply);
void answer_close_communicator(const Service& service, const ServerRequest& request,
                               const std::shared_ptr<ServerReply>& reply);
// vLLM's form:
void answer_server_info(const Service& service, const ServerRequest& request,
                        const std::shared_ptr<ServerReply>& reply);
void answer_init_transfer(const Service& service, const ServerRequest& request,
                          const std::shared_ptr<ServerReply>& reply);
void answer_start_update(const Service& service, const ServerRequest& request,
                         const std::shared_ptr<ServerReply>& reply);
void answer_finish_update(const Service& service, const ServerRequest& request,
                          const std::shared_ptr<ServerReply>& reply);
// Answers /update_weights whose update_info, `info`, announces tensors. under_way: becomes of requests if the call
// begins an update
void receive_weights(const Service& service, const ServerRequest& request, const std::shared_ptr<ServerReply>& reply,
                     const Json& info, UnderWay under_way);

}  // namespace hone
