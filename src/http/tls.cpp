#include "http/tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

#include <string_view>

#include "core/error.h"
#include "core/files.h"
#include "http/tls_identity.h"

namespace hone {
namespace {

constexpr const char* kCertificateOption = "ssl_certfile";
constexpr const char* kKeyOption = "ssl_keyfile";

// Reads a file of PEM blocks. Messages begin with the option that names it.
std::string read_pem(const char* option, const std::string& file) {
  try {
    return read_file(file);
  } catch (const Error& error) {
    throw Error(option, error.what(), "name a file in PEM form that this user can read");
  }
}

// Gives no password. Without this function OpenSSL would ask for one on the terminal.
int give_no_password(char*, int, int, void*) { return -1; }

void use_certificate(TlsIdentity& identity, const std::string& file, const std::string& pem) {
  boost::system::error_code error;
  (void)identity.context.use_certificate_chain(boost::asio::buffer(pem), error);
  if (error) {
    throw Error(kCertificateOption, text_of(file, " cannot be used as a certificate: ", error.message()),
                "give a certificate in PEM form, followed by those that link it to an authority");
  }
}

void use_key(TlsIdentity& identity, const std::string& file, const std::string& pem) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> source(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())),
                                                         &BIO_free);
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
      PEM_read_bio_PrivateKey(source.get(), nullptr, &give_no_password, nullptr), &EVP_PKEY_free);
  const bool is_encrypted = pem.find("ENCRYPTED") != std::string::npos;
  if (key == nullptr) {
    throw Error(kKeyOption, text_of(file, is_encrypted ? " has an encrypted key" : " has no private key in PEM form"),
                is_encrypted ? text_of("decrypt it: openssl pkey -in ", file, " -out KEY_FILE")
                             : "give the file of the certificate's private key");
  }
  SSL_CTX* context = identity.context.native_handle();
  if (SSL_CTX_use_PrivateKey(context, key.get()) != 1 || SSL_CTX_check_private_key(context) != 1)
    throw Error(kKeyOption, text_of("the key in ", file, " is not that of the certificate"),
                text_of("give the key with which the certificate of ", kCertificateOption, " was made"));
}

}  // namespace

std::shared_ptr<TlsIdentity> read_tls_identity(const std::string& certificate_file, const std::string& key_file) {
  if (certificate_file.empty() && key_file.empty()) return nullptr;
  if (certificate_file.empty())
    throw Error(kKeyOption, "is given without a certificate", text_of("set ", kCertificateOption, ", too"));
  const std::string& used_key_file = key_file.empty() ? certificate_file : key_file;
  const std::string certificate = read_pem(kCertificateOption, certificate_file);
  const std::string key = key_file.empty() ? certificate : read_pem(kKeyOption, key_file);
  auto identity = std::make_shared<TlsIdentity>();
  SSL_CTX* context = identity->context.native_handle();
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_options(context, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);  // tickets resume sessions without it
  ERR_clear_error();
  use_certificate(*identity, certificate_file, certificate);
  use_key(*identity, used_key_file, key);
  ERR_clear_error();
  return identity;
}

}  // namespace hone
