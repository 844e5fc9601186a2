package console

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/evanw/esbuild/pkg/api"
)

const assets = "../../../server/console/assets"

// makesHTML are the ways to make HTML or code from text. Only html.js may use one of them, through
// the policy for Trusted Types.
var makesHTML = regexp.MustCompile(`\b(innerHTML|outerHTML|insertAdjacentHTML|eval|document\.write|new Function|srcdoc|setHTMLUnsafe|parseHTMLUnsafe|createContextualFragment|DOMParser)\b`)

func TestScripts(t *testing.T) {
	files, err := filepath.Glob(assets + "/js/*.js")
	if err != nil || len(files) == 0 {
		t.Fatalf("finding the scripts: %v, %d files", err, len(files))
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			result := api.Transform(string(text), api.TransformOptions{Loader: api.LoaderJS, Format: api.FormatESModule, Target: api.ES2022, Sourcefile: file})
			for _, m := range append(result.Errors, result.Warnings...) {
				t.Errorf("line %d: %s", m.Location.Line, m.Text)
			}
			if found := makesHTML.FindString(string(text)); found != "" && filepath.Base(file) != "html.js" {
				t.Errorf("%s makes HTML or code from text: only html.js may", found)
			}
		})
	}
}

// TestEntryLoadsAll checks that the page's one script imports every module and that all imports
// exist.
func TestEntryLoadsAll(t *testing.T) {
	result := api.Build(api.BuildOptions{EntryPoints: []string{assets + "/js/console.js"}, Bundle: true, Write: false, Metafile: true, Format: api.FormatESModule, LogLevel: api.LogLevelSilent})
	for _, m := range result.Errors {
		t.Error(m.Text)
	}
	files, err := filepath.Glob(assets + "/js/*.js")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !strings.Contains(result.Metafile, "assets/js/"+filepath.Base(file)) {
			t.Errorf("console.js does not import %s", filepath.Base(file))
		}
	}
}
