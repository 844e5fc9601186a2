// Package release defines the format of a release: the names of its files, the list of their
// checksums, the signature of that list, and the channel file in which a mirror names the newest
// release. The programs that build and install releases share the package. docs/releasing.md
// describes the format.
package release

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// The names of files that every release contains.
const (
	Program = "customer-managed-workflow-agent"
	OldName = "customer-managed-deployment-agent" // name of a link to Program
	Server  = "workflow-server"
	// Evaluator evaluates environments for Server, which expects it in its own directory.
	Evaluator = "workflow-esc"

	ChecksumsFile   = "checksums.txt"
	SignatureSuffix = ".sig"
)

// Programs returns the names of the executables in an archive. An update replaces all of them
// together.
func Programs() []string {
	return []string{Program, "workflow-runner", "workflow-runner-embeddable", "workflow-runner-embeddable-arm64"}
}

// version matches a semantic version (SemVer 2.0) with a leading v and without build metadata,
// which package formats do not allow.
var version = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)

// maxVersion limits the length of a version, which becomes part of file names.
const maxVersion = 64

// CheckVersion returns an error unless text is the version of a release, such as v1.2.3 or
// v1.2.3-rc.1.
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

// architectures maps GOARCH values to the names that archives use.
var architectures = map[string]string{"amd64": "x64", "arm64": "arm64"}

// Archive returns the name of the agent's archive for a GOOS and GOARCH. The directory in the
// archive has the same name without .tar.gz.
func Archive(version, goos, goarch string) (string, error) {
	return archive(Program, version, goos, goarch)
}

// ServerArchive returns the name of the server's archive for a GOOS and GOARCH.
func ServerArchive(version, goos, goarch string) (string, error) {
	return archive(Server, version, goos, goarch)
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
