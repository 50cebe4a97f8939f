// The pickled objects that vLLM's StatelessProcessGroup puts into a TCPStore: the id of an NCCL communicator and the
// name of a barrier. Nothing else is read, and reading runs none of pickle's calls.
// Source: https://docs.python.org/3/library/pickle.html, Lib/pickletools.py; vllm/distributed/utils.py.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace hone {

// ncclUniqueId: opaque bytes that all ranks of a communicator have in common.
using UniqueId = std::array<std::byte, 128>;

// Returns what pickle.dumps() writes for vLLM's ncclUniqueId, a ctypes structure.
[[nodiscard]] std::string pickle_of(const UniqueId& id);
// Reads such a pickle of protocol 4 or 5, whatever the module of the structure is called. Throws Error if it is another
// object.
[[nodiscard]] UniqueId unique_id_from_pickle(std::string_view pickle);

// Returns what pickle.dumps() writes for a text of at most 255 bytes.
[[nodiscard]] std::string pickle_of(std::string_view text);

}  // namespace hone
