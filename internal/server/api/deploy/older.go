package deploy

import "encoding/json"

// fromOlder returns the request of an older client for a deployment in today's form. Such a client sends
// the operation as a member of operationContext, and does not expect that the deployment inherits the
// settings of the stack. A body in another form is returned unchanged, for later errors.
func fromOlder(body []byte) []byte {
	var all map[string]json.RawMessage
	var sent struct {
		Inherit *json.RawMessage `json:"inheritSettings"`
	}
	if json.Unmarshal(body, &all) != nil || json.Unmarshal(body, &sent) != nil || all == nil {
		return body
	}
	if sent.Inherit == nil {
		all["inheritSettings"] = json.RawMessage("false")
	}
	var inner map[string]json.RawMessage
	if json.Unmarshal(all["operationContext"], &inner) == nil && inner["operation"] != nil && all["operation"] == nil {
		all["operation"] = inner["operation"]
		delete(inner, "operation")
		context, err := json.Marshal(inner)
		if err != nil {
			return body
		}
		all["operationContext"] = context
	}
	today, err := json.Marshal(all)
	if err != nil {
		return body
	}
	return today
}
