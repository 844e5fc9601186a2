package environ

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"workflowagent/internal/sys/boundedfile"
)

// systemBundles are the usual paths of files with all certificate authorities of a system.
// systemDirs are the usual directories with one file per authority.
var (
	systemBundles = []string{
		"/etc/ssl/certs/ca-certificates.crt",
		"/etc/pki/tls/certs/ca-bundle.crt",
		"/etc/ssl/ca-bundle.pem",
		"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
		"/etc/ssl/cert.pem",
	}
	systemDirs = []string{"/etc/ssl/certs", "/etc/pki/tls/certs"}
)

// bundleNames are the variables that make tools read a bundle other than their default.
// SSL_CERT_FILE applies to Go and OpenSSL, and NODE_EXTRA_CA_CERTS to Node. Other tools have their
// own variables.
var bundleNames = []string{
	"NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "AWS_CA_BUNDLE",
	"CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
}

// The maximum sizes of files in bytes: with all authorities, and with one.
const (
	maxBundle    = 16 << 20
	maxAuthority = 1 << 20
)

// writeBundle writes a file with the authorities that the container or host already trusts and
// those in extra. Most tools read one file that replaces their default, so a file with only extra
// would remove all others. current and currentDirs are the existing values of SSL_CERT_FILE and
// SSL_CERT_DIR.
func writeBundle(path, extra, current, currentDirs string) error {
	bundle := trusted(current, currentDirs)
	if len(bundle) > 0 {
		bundle = append(bundle, '\n')
	}
	bundle = append(bundle, extra...)
	if err := os.WriteFile(path, bundle, 0o644); err != nil {
		return fmt.Errorf("writing the job's certificate authorities: %w", err)
	}
	return nil
}

// trusted returns the trusted authorities as PEM text, from the first existing file or else from
// all files of the first non-empty directory.
func trusted(file, dirs string) []byte {
	files := systemBundles
	if file != "" {
		files = append([]string{file}, files...)
	}
	for _, candidate := range files {
		if data, err := boundedfile.Read(candidate, maxBundle); err == nil && len(data) > 0 {
			return data
		}
	}
	for _, dir := range append(filepath.SplitList(dirs), systemDirs...) {
		if data := authorities(dir); len(data) > 0 {
			return data
		}
	}
	return nil
}

// authorities returns the certificates in a directory's files without duplicates, because most
// files have their hash as a second name.
func authorities(dir string) []byte {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var all []byte
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		data, err := boundedfile.Read(path, maxAuthority)
		if err != nil || !bytes.Contains(data, []byte("-----BEGIN CERTIFICATE-----")) || bytes.Contains(all, data) {
			continue
		}
		all = append(append(all, data...), '\n')
	}
	return all
}
