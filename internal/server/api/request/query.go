package request

import (
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
		return false, fault.Invalid("Bad Request: Invalid query parameter: %s must be true or false", name)
	}
	return b, nil
}

// QueryInt parses an integer query parameter into v. It leaves v unchanged if the parameter is
// missing.
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
