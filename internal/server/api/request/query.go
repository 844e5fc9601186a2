package request

import (
	"net/http"
	"strconv"

	"workflowagent/internal/server/fault"
)

// QueryFlag reads a boolean query parameter; a missing one is false.
func QueryFlag(r *http.Request, name string) (bool, error) {
	v := r.URL.Query().Get(name)
	if v == "" {
		return false, nil
	}
	b, err := strconv.ParseBool(v)
	if err != nil {
		return false, fault.Invalid("Bad Request: Invalid query parameter: %s must be true or false", name)
	}
	return b, nil
}

// QueryInt reads an integer query parameter into v, and leaves v unchanged if it is missing.
func QueryInt(r *http.Request, name string, v *int) error {
	text := r.URL.Query().Get(name)
	if text == "" {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return fault.Invalid("Bad Request: Invalid query parameter: %s must be a whole number", name)
	}
	*v = int(n)
	return nil
}
