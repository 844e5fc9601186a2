package deployments_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/redact"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/workflow"
)

// TestSecretsOfADeploymentAreLimited checks the limit with many secrets, whose ciphertexts are longer.
func TestSecretsOfADeploymentAreLimited(t *testing.T) {
	p := newPlant(t, storetest.SQLite(t), deployments.Options{})
	st := p.stack("dev")
	body := func(size int) workflow.Request {
		vars := map[string]any{}
		for i := 0; size > 0; i++ {
			n := min(size, 512)
			vars[fmt.Sprint("V", i)] = map[string]string{"secret": strings.Repeat("x", n)}
			size -= n
		}
		data, err := json.Marshal(map[string]any{"operation": "update", "operationContext": map[string]any{"environmentVariables": vars}})
		p.must(err)
		return asked(t, string(data))
	}
	_, err := p.service.Create(t.Context(), p.user, st, body(redact.MaxJobBytes), "test")
	p.must(err)
	if _, err = p.service.Create(t.Context(), p.user, st, body(redact.MaxJobBytes+1), "test"); fault.KindOf(err) != fault.KindInvalid || !strings.Contains(err.Error(), "secrets") {
		t.Errorf("one byte more: %v", err)
	}
}
