package request

import (
	"encoding/base64"
	"net/http"
	"strconv"

	"workflowagent/internal/server/fault"
)

// QueryFlag returns a boolean query parameter, or false if it is missing.
func QueryFlag(r *http.Request, name string) (bool, error) {
	v := r.URL.Query().Get(name)
	if v == "" {
		return false, nil
	}
	b, err := strconv.ParseBool(v)
	if err != nil {
		return false, fault.Invalid("Invalid query parameter: %s must be true or false", name)
	}
	return b, nil
}

// QueryInt parses an integer query parameter into v. It leaves v unchanged if the parameter is
// missing.
func QueryInt(r *http.Request, name string, v *int) error { return queryInt(r, name, 32, v) }

// QueryInt64 is like [QueryInt].
func QueryInt64(r *http.Request, name string, v *int64) error { return queryInt(r, name, 64, v) }

func queryInt[T int | int64](r *http.Request, name string, bits int, v *T) error {
	text := r.URL.Query().Get(name)
	if text == "" {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, bits)
	if err != nil {
		return fault.Invalid("Invalid query parameter: %s must be a whole number", name)
	}
	*v = T(n)
	return nil
}

// Page returns the number of elements on the page of a list that the query parameters page and pageSize
// select, and the number of elements before the page. The limit is 0 for the whole list: page 0, which is
// the default.
func Page(r *http.Request) (limit, offset int, err error) {
	page, size := 0, 10
	for name, v := range map[string]*int{"page": &page, "pageSize": &size} {
		if err := QueryInt(r, name, v); err != nil {
			return 0, 0, err
		}
		if *v < 0 || *v > 1_000_000 {
			return 0, 0, fault.Invalid("Invalid query parameter: %s must be between 0 and 1000000", name)
		}
	}
	if page == 0 || size == 0 {
		return 0, 0, nil
	}
	return size, (page - 1) * size, nil
}

// Sizes of pages of lists that continue by a token.
const (
	DefaultPage = 200
	maxPage     = 1000
)

// MaxResults returns the number of elements on a page, by the query parameter maxResults.
func MaxResults(r *http.Request) (int, error) {
	n := DefaultPage
	if err := QueryInt(r, "maxResults", &n); err != nil {
		return 0, err
	}
	if n < 1 {
		return 0, fault.Invalid("Invalid query parameter: maxResults must be above 0")
	}
	return min(n, maxPage), nil
}

// ErrContinuation is the error for a continuation token that the server has not made.
var ErrContinuation = fault.Invalid("Invalid continuation token.")

// After returns the position after which a page begins, or "" for the first page.
func After(r *http.Request) (string, error) {
	after, err := base64.RawURLEncoding.DecodeString(r.URL.Query().Get("continuationToken"))
	if err != nil || !IsText(string(after)) {
		return "", ErrContinuation
	}
	return string(after), nil
}

// Continuation returns the continuation token for the page behind a position.
func Continuation(position string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(position))
}
