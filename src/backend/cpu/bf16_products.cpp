#include "backend/cpu/bf16_products.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string_view>

#include "core/error.h"

namespace hone {
namespace {

constexpr const char* kVariable = "HONE_BF16_PRODUCTS";

struct Name {
  std::string_view name;
  Bf16Products kind;
};
constexpr Name kNames[] = {{"fma", Bf16Products::kFma}, {"avx512", Bf16Products::kAvx512}, {"amx", Bf16Products::kAmx}};

// Packing uses AVX-512 in every kind but kFma.
bool has_avx512_bf16() {
  return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512bf16");
}

// Asks Linux for the tile registers of AMX, which a process has only on request. Threads inherit the permission.
bool has_amx() {
  constexpr unsigned kAmxBf16 = 1U << 22, kAmxTile = 1U << 24;  // CPUID 7.0, EDX
  constexpr long kRequestPermission = 0x1023;                   // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;                                // XFEATURE_XTILEDATA
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  if ((edx & kAmxBf16) == 0 || (edx & kAmxTile) == 0) return false;
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// On the Intel processor that was measured, AVX512_BF16 is slower than fma (docs/performance.md). AMD's from Zen 4 on
// should execute it at twice the rate of fma, which has not been measured.
Bf16Products fastest_kind() {
  if (has_bf16_products(Bf16Products::kAmx)) return Bf16Products::kAmx;
  return has_bf16_products(Bf16Products::kAvx512) && __builtin_cpu_is("amd") ? Bf16Products::kAvx512
                                                                             : Bf16Products::kFma;
}

std::atomic<Bf16Products>& selected() {
  static std::atomic<Bf16Products> kind = [] {
    const char* value = std::getenv(kVariable);
    return bf16_products_of(value == nullptr ? "" : value);
  }();
  return kind;
}

}  // namespace

Bf16Products bf16_products_of(std::string_view value) {
  if (value.empty()) return fastest_kind();
  for (const Name& each : kNames) {
    if (value != each.name) continue;
    if (has_bf16_products(each.kind)) return each.kind;
    throw Error(kVariable, text_of("this machine has no ", value), "unset it, or choose fma");
  }
  throw Error(kVariable, text_of("unknown kind '", value, "'"), "choose fma, avx512 or amx");
}

bool has_bf16_products(Bf16Products kind) {
  static const bool avx512 = has_avx512_bf16();
  static const bool amx = avx512 && has_amx();
  return kind == Bf16Products::kFma || (kind == Bf16Products::kAmx ? amx : avx512);
}

Bf16Products bf16_products() { return selected(); }

void set_bf16_products(Bf16Products kind) {
  HONE_ASSERT(has_bf16_products(kind), "kind ", static_cast<int>(kind));
  selected() = kind;
}

}  // namespace hone
