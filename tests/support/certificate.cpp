#include "support/certificate.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <functional>
#include <memory>

namespace hone::test {
namespace {

// Returns the text that `write` writes.
std::string text_in_pem(const std::function<void(BIO*)>& write) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> memory(BIO_new(BIO_s_mem()), &BIO_free);
  write(memory.get());
  char* bytes = nullptr;
  const long count = BIO_get_mem_data(memory.get(), &bytes);
  return {bytes, static_cast<std::size_t>(count)};
}

void add_extension(X509* certificate, int kind, const char* value) {
  const std::unique_ptr<X509_EXTENSION, decltype(&X509_EXTENSION_free)> extension(
      X509V3_EXT_conf_nid(nullptr, nullptr, kind, value), &X509_EXTENSION_free);
  X509_add_ext(certificate, extension.get(), -1);
}

}  // namespace

Certificate make_certificate(KeyKind kind) {
  constexpr long kDay = 24L * 60 * 60;
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
      kind == KeyKind::kRsa ? EVP_RSA_gen(2048U) : EVP_EC_gen("P-256"), &EVP_PKEY_free);
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(X509_new(), &X509_free);
  X509* x509 = certificate.get();
  X509_set_version(x509, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(x509), 1);
  X509_gmtime_adj(X509_getm_notBefore(x509), -kDay);
  X509_gmtime_adj(X509_getm_notAfter(x509), kDay);
  X509_set_pubkey(x509, key.get());
  X509_NAME* name = X509_get_subject_name(x509);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
  X509_set_issuer_name(x509, name);
  add_extension(x509, NID_basic_constraints, "critical,CA:TRUE");
  add_extension(x509, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
  X509_sign(x509, key.get(), EVP_sha256());
  const auto key_text = [&](const EVP_CIPHER* cipher, const char* password) {
    return text_in_pem([&](BIO* to) {
      PEM_write_bio_PKCS8PrivateKey(to, key.get(), cipher, nullptr, 0, nullptr, const_cast<char*>(password));
    });
  };
  return {.certificate = text_in_pem([&](BIO* to) { PEM_write_bio_X509(to, x509); }),
          .key = key_text(nullptr, nullptr),
          .encrypted_key = key_text(EVP_aes_256_cbc(), "password")};
}

}  // namespace hone::test
