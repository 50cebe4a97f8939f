#include "rendezvous/store_state.h"

#include <algorithm>
#include <charconv>

#include "core/error.h"

namespace hone {
namespace {

constexpr const char* kStore = "store";

}  // namespace

StoreState::Client StoreState::add_client() {
  clients_[++last_client_];
  return last_client_;
}

std::size_t StoreState::valid_clients() const {
  return static_cast<std::size_t>(std::ranges::count_if(clients_, [](const auto& one) { return one.second.valid; }));
}

void StoreState::receive(Client client, std::string_view bytes) {
  ClientState& state = clients_.at(client);
  state.input += bytes;
  std::size_t done = 0;
  StoreRequest request;
  while (const std::size_t length = read_store_request(std::string_view(state.input).substr(done), request)) {
    done += length;
    carry_out(state, request);
    if (state.output.size() > kMostUnreadBytes)
      throw Error(kStore, text_of("a client has not read ", state.output.size(), " bytes of answers"));
  }
  state.input.erase(0, done);
}

void StoreState::carry_out(ClientState& client, const StoreRequest& request) {
  if (!client.valid && (request.query != StoreQuery::kValidate || request.number != kStoreMagic))
    throw Error(kStore, "a client does not begin as torch's do");
  client.valid = true;
  answer(client, request);
}

void StoreState::answer(ClientState& client, const StoreRequest& request) {
  std::string& output = client.output;
  switch (request.query) {
    case StoreQuery::kValidate:
      return;
    case StoreQuery::kPing:
      return void(output.append(reinterpret_cast<const char*>(&request.number), sizeof request.number));
    case StoreQuery::kSet:
    case StoreQuery::kMultiSet:
      for (std::size_t i = 0; i < request.keys.size(); ++i) set(request.keys[i], request.values[i]);
      return;
    case StoreQuery::kAppend:
      return set(request.keys[0], get(request.keys[0]).value_or("") + request.values[0]);
    case StoreQuery::kCompareSet: {
      // If the key is missing, torch answers with the expected value, unless that is empty, which creates the key.
      const std::optional<std::string> found = get(request.keys[0]);
      if (found.value_or("") == request.values[0]) set(request.keys[0], request.values[1]);
      return append_value(output, get(request.keys[0]).value_or(request.values[0]));
    }
    case StoreQuery::kGet:
    case StoreQuery::kMultiGet:
      for (const std::string& key : request.keys) append_value(output, existing(key));
      return;
    case StoreQuery::kAdd:
      return append_number(output, add(request.keys[0], request.amount));
    case StoreQuery::kCheck:
      return output.push_back(static_cast<char>(has_all(request.keys) ? kReady : kNotReady));
    case StoreQuery::kWait:
      if (has_all(request.keys)) return output.push_back(static_cast<char>(kStopWaiting));
      client.awaited = request.keys;
      return;
    case StoreQuery::kCancelWait:
      client.awaited.clear();
      return output.push_back(static_cast<char>(kWaitCanceled));
    case StoreQuery::kCountKeys:
      return append_number(output, static_cast<std::int64_t>(size()));
    case StoreQuery::kDeleteKey:
      return append_number(output, erase(request.keys[0]) ? 1 : 0);
  }
}

const std::string& StoreState::existing(const std::string& key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) throw Error(kStore, text_of("there is no key \"", key, "\""));
  return found->second;
}

bool StoreState::has_all(const std::vector<std::string>& keys) const {
  return std::ranges::all_of(keys, [&](const std::string& key) { return values_.contains(key); });
}

std::optional<std::string> StoreState::get(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? std::nullopt : std::optional(found->second);
}

void StoreState::set(const std::string& key, std::string value) {
  const auto found = values_.find(key);
  const std::size_t before = found == values_.end() ? 0 : key.size() + found->second.size();
  const std::size_t bytes = bytes_ - before + key.size() + value.size();
  if (value.size() > kMostValueBytes || bytes > kMostStoreBytes || (found == values_.end() && size() >= kMostStoreKeys))
    throw Error(kStore, text_of("the key \"", key, "\" would make ", size() + 1, " keys of ", bytes, " bytes"),
                text_of("at most ", kMostStoreKeys, " keys of ", kMostStoreBytes, " bytes"));
  bytes_ = bytes;
  values_.insert_or_assign(key, std::move(value));
  wake();
}

std::int64_t StoreState::add(const std::string& key, std::int64_t amount) {
  std::int64_t sum = 0;
  if (const std::optional<std::string> found = get(key)) {
    const char* end = found->data() + found->size();
    if (const auto result = std::from_chars(found->data(), end, sum); result.ec != std::errc() || result.ptr != end)
      throw Error(kStore, text_of("the key \"", key, "\" holds no number"));
  }
  if (__builtin_add_overflow(sum, amount, &sum)) throw Error(kStore, text_of("the key \"", key, "\" overflows"));
  set(key, std::to_string(sum));
  return sum;
}

bool StoreState::erase(const std::string& key) {
  const auto found = values_.find(key);
  if (found == values_.end()) return false;
  bytes_ -= key.size() + found->second.size();
  values_.erase(found);
  return true;
}

void StoreState::wake() {
  for (auto& [id, client] : clients_) {
    if (client.awaited.empty() || !has_all(client.awaited)) continue;
    client.awaited.clear();
    client.output.push_back(static_cast<char>(kStopWaiting));
  }
}

}  // namespace hone
