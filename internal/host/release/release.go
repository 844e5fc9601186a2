// Package release defines the form of a release: the names of its files, their checksum list, the
// signature over that list, and the channel file with which a mirror names the newest release. The
// maker and the installer of releases share it; docs/releasing.md describes it.
package release

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Names of the files that every release has.
const (
	Program = "customer-managed-workflow-agent"
	OldName = "customer-managed-deployment-agent" // a link to Program

	ChecksumsFile   = "checksums.txt"
	SignatureSuffix = ".sig"
)

// Programs returns the executables of an archive. A release replaces all of them together.
func Programs() []string {
	return []string{Program, "workflow-runner", "workflow-runner-embeddable", "workflow-runner-embeddable-arm64"}
}

// version matches semver 2.0 with a leading v, without build metadata, which packages do not allow.
var version = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)

// maxVersion limits the length of a version, which becomes part of file names.
const maxVersion = 64

// CheckVersion returns an error unless text is a release's version, as v1.2.3 or v1.2.3-rc.1.
func CheckVersion(text string) error {
	match := version.FindStringSubmatch(text)
	if match == nil || len(text) > maxVersion {
		return fmt.Errorf("%s is not the version of a release: it must look like v1.2.3 or v1.2.3-rc.1", strconv.Quote(text[:min(len(text), maxVersion)]))
	}
	for word := range strings.SplitSeq(strings.TrimPrefix(match[4], "-"), ".") {
		if len(word) > 1 && word[0] == '0' && strings.Trim(word, "0123456789") == "" {
			return fmt.Errorf("%q is not the version of a release: the number %s begins with 0", text, word)
		}
	}
	return nil
}

// architectures maps GOARCH to the names in archives.
var architectures = map[string]string{"amd64": "x64", "arm64": "arm64"}

// Archive returns the archive's name for a GOOS and GOARCH; without .tar.gz, that of its directory.
func Archive(version, goos, goarch string) (string, error) {
	return archive(Program, version, goos, goarch)
}

// ServerArchive returns the name of the server's archive.
func ServerArchive(version, goos, goarch string) (string, error) {
	return archive("workflow-server", version, goos, goarch)
}

func archive(program, version, goos, goarch string) (string, error) {
	if err := CheckVersion(version); err != nil {
		return "", err
	}
	arch, ok := architectures[goarch]
	if !ok || goos != "linux" && goos != "darwin" {
		return "", fmt.Errorf("no release exists for %s/%s: choose linux or darwin, amd64 or arm64", goos, goarch)
	}
	return fmt.Sprintf("%s-%s-%s-%s.tar.gz", program, version, goos, arch), nil
}
