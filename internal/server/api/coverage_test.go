package api_test

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"workflowagent/internal/server/api/absent"
)

// evaluated are operations that need the program that evaluates environments, which this package does not have. The tests with
// the stock CLI complete them.
var evaluated = map[string]bool{
	"POST /api/esc/environments/{}/yaml/check": true, "POST /api/esc/environments/{}/yaml/open": true, "GET /api/esc/environments/{}/yaml/open/{}": true,
	"POST /api/esc/environments/{}/{}/{}/check": true, "POST /api/esc/environments/{}/{}/{}/versions/{}/check": true,
	"POST /api/esc/environments/{}/{}/{}/open": true, "POST /api/esc/environments/{}/{}/{}/versions/{}/open": true, "GET /api/esc/environments/{}/{}/{}/open/{}": true,
	"POST /api/esc/environments/{}/{}/{}/drafts": true, "GET /api/esc/environments/{}/{}/{}/drafts/{}": true, "POST /api/esc/environments/{}/{}/{}/drafts/{}/open": true,
}

// checkCoverage returns the exit code of the tests: 1 if an operation of the public API is not
// absent, and no test received a valid response with a status 2xx from it. It checks nothing if the
// command line selects tests, or if the descriptions of the public API are missing.
func checkCoverage() int {
	for _, selection := range []string{"test.run", "test.skip", "test.list", "test.fuzz"} {
		if f := flag.Lookup(selection); f != nil && f.Value.String() != "" {
			return 0
		}
	}
	if testing.Short() {
		return 0
	}
	code := 0
	for _, operation := range contract.operations {
		method, path, _ := strings.Cut(operation, " ")
		if _, ok := absent.Match(method, path); ok || method == http.MethodOptions || contract.answered[operation] || evaluated[operation] {
			continue
		}
		fmt.Fprintln(os.Stderr, "the operation is not absent, but no test completes a request for it:", operation)
		code = 1
	}
	return code
}
