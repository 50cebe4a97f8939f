// The messages of torch's TCPStore, a table of keys and values that the processes of a job share over TCP. torch's
// clients send the same bytes with and without libuv.
//
// A request is a byte that names the query, followed by its arguments: u64 counts, keys and values as a u64 length and
// bytes, i64 and u32 numbers, all little-endian. The first request of a connection is kValidate.
// Source: torch/csrc/distributed/c10d/TCPStore.cpp and TCPStoreBackend.hpp, torch 2.1 to 2.15.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

enum class StoreQuery : std::uint8_t {
  kValidate = 0,     // number = kStoreMagic; no answer
  kSet = 1,          // a key and its value; no answer
  kCompareSet = 2,   // a key, the expected and the desired value; answers with the value
  kGet = 3,          // a key, which must exist; answers with its value
  kAdd = 4,          // a key and an amount; answers with the sum, i64. The value becomes the sum in decimal digits
  kCheck = 5,        // keys; answers kReady or kNotReady
  kWait = 6,         // keys; answers kStopWaiting once all of them exist
  kCountKeys = 7,    // answers with the number of keys, i64
  kDeleteKey = 8,    // a key; answers with the number of keys deleted, i64
  kAppend = 9,       // a key and bytes to append to its value; no answer
  kMultiGet = 10,    // keys, which must exist; answers with their values
  kMultiSet = 11,    // keys, each followed by its value; no answer
  kCancelWait = 12,  // ends a wait; answers kWaitCanceled
  kPing = 13,        // a number; answers with it, u32
};

inline constexpr std::uint32_t kStoreMagic = 0x3C85F7CE;
inline constexpr std::uint8_t kReady = 0;
inline constexpr std::uint8_t kNotReady = 1;
inline constexpr std::uint8_t kStopWaiting = 0;
inline constexpr std::uint8_t kWaitCanceled = 1;

// Bounds of a message. torch's own are 8 KiB, 8 MiB and 128 Ki keys; what trainers exchange is some hundred bytes.
inline constexpr std::size_t kMostKeyBytes = 1024;
inline constexpr std::size_t kMostValueBytes = std::size_t{64} << 10;
inline constexpr std::size_t kMostKeysInMessage = 256;
inline constexpr std::size_t kMostMessageBytes = std::size_t{512} << 10;

struct StoreRequest {
  StoreQuery query = StoreQuery::kPing;
  std::vector<std::string> keys;
  std::vector<std::string> values;  // of kSet, kAppend and kMultiSet one for each key; of kCompareSet two
  std::int64_t amount = 0;          // of kAdd
  std::uint32_t number = 0;         // of kValidate and kPing
};

// Reads the request that `bytes` begin with. Returns its length, or 0 if more bytes are needed. Throws Error if it is
// none or beyond the bounds.
[[nodiscard]] std::size_t read_store_request(std::string_view bytes, StoreRequest& request);
// Returns the bytes of a request.
[[nodiscard]] std::string bytes_of(const StoreRequest& request);

// Append a number, or a value with its length, to a message.
void append_number(std::string& message, std::int64_t number);
void append_value(std::string& message, std::string_view value);

}  // namespace hone
