package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// composeFile is the file of a release that starts its images with Compose.
const composeFile = "compose.yaml"

// composed matches the names of images in packaging/compose.
var composed = regexp.MustCompile(`registry\.example\.com/pulumi/([a-z-]+):v1\.2\.3`)

// composition writes the composition of the release. It names the pushed images, or those that "docker load" reads
// from the directory images on a machine with this one's processor.
func (m *maker) composition() error {
	text, err := os.ReadFile(filepath.Join(m.root, "packaging", "compose", composeFile))
	if err != nil {
		return fmt.Errorf("reading the composition: %w", err)
	}
	if n := len(composed.FindAll(text, -1)); n != 2 {
		return fmt.Errorf("%s names %d images of the release, not 2", composeFile, n)
	}
	name := "${1}:" + m.version + "-" + runtime.GOARCH
	if m.push != "" {
		name = strings.TrimRight(m.push, "/") + "/${1}:" + m.version
	}
	return writeFile(filepath.Join(m.files, composeFile), composed.ReplaceAll(text, []byte(name)))
}
