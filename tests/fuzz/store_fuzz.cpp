// Fuzz target: the input as what two clients of a TCPStore send, in turns of the length in a byte, and as a pickled id.

#include <algorithm>
#include <string>

#include "fuzz/target.h"
#include "rendezvous/pickles.h"
#include "rendezvous/store_state.h"

namespace hone::fuzz {
namespace {

// A request that was read is written as the same bytes.
void check_requests(std::string_view bytes) {
  StoreRequest request;
  while (const std::size_t length = read_store_request(bytes, request)) {
    HONE_ASSERT(bytes_of(request) == bytes.substr(0, length), "a request of ", length, " bytes");
    bytes.remove_prefix(length);
  }
}

}  // namespace
}  // namespace hone::fuzz

HONE_FUZZ_TARGET(store)(const std::uint8_t* data, std::size_t size) {
  using namespace hone;
  const std::string_view input = fuzz::as_text(data, size);
  (void)fuzz::accepts([&] { fuzz::check_requests(input); });
  (void)fuzz::accepts([&] {
    const UniqueId id = unique_id_from_pickle(input);
    HONE_ASSERT(unique_id_from_pickle(pickle_of(id)) == id, "another id");
  });
  StoreState store;
  StoreState::Client clients[2] = {store.add_client(), store.add_client()};
  std::size_t turn = 0;
  for (std::string_view rest = input; !rest.empty(); ++turn) {
    const std::size_t length = std::min<std::size_t>(static_cast<unsigned char>(rest.front()), rest.size() - 1);
    StoreState::Client& client = clients[turn % 2];
    const bool accepted = fuzz::accepts([&] { store.receive(client, rest.substr(1, length)); });
    HONE_ASSERT(store.size() <= kMostStoreKeys, store.size(), " keys");
    if (!accepted) {
      store.remove_client(client);
      client = store.add_client();
    }
    rest.remove_prefix(1 + length);
  }
  return 0;
}
