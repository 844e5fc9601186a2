package request

import (
	"net/http"
	"strconv"

	"workflowagent/internal/server/fault"
)

// QueryFlag reads a boolean query parameter; absent is false.
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
