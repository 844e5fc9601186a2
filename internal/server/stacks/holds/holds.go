// Package holds knows which types of resources hold data, so that pages can name what a deletion loses.
package holds

import (
	_ "embed"
	"strings"
)

//go:embed types.txt
var list string

// types are the types of resources that hold data, in the form of [Short].
var types = parse(list)

func parse(list string) map[string]bool {
	found := map[string]bool{}
	for line := range strings.Lines(list) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			found[line] = true
		}
	}
	return found
}

// Data reports whether resources of a type, such as aws:s3/bucket:Bucket, hold data. It knows no type that is not in
// types.txt.
func Data(kind string) bool { return types[Short(kind)] }

// Short returns a type without the file or version of its module: aws:s3:Bucket for aws:s3/bucket:Bucket.
func Short(kind string) string {
	parts := strings.Split(kind, ":")
	if len(parts) != 3 {
		return kind
	}
	module, _, _ := strings.Cut(parts[1], "/")
	return parts[0] + ":" + module + ":" + parts[2]
}
