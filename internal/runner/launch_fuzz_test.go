package runner_test

import (
	"bytes"
	"strings"
	"testing"

	"workflowagent/internal/runner"
)

// FuzzReadLaunch reads crafted launch documents. What is accepted names a server, a job and a
// token, and no error repeats what was read.
func FuzzReadLaunch(f *testing.F) {
	f.Add([]byte(`{"serviceURL":"http://x","jobID":"1","jobToken":"sensitive-token","epoch":3,"signed":true,"definition":{"steps":[{},{"run":"x"}]}}`))
	f.Add([]byte(`{"serviceURL":"https://sensitive-token@x","jobID":"1","jobToken":"t","proxy":{"HTTPS_PROXY":"http://u:sensitive-token@p"}}`))
	f.Add([]byte(`{"offline":true,"definition":{"steps":null},"forwardedEnv":{"A":"sensitive-token"}}`))
	f.Add([]byte(`{"jobToken":["sensitive-token"]}`))
	f.Add([]byte(`{"probe":{"urls":["%zz"],"seconds":-1},"epoch":9223372036854775808}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		launch, err := runner.ReadLaunch(t.Context(), bytes.NewReader(data))
		switch {
		case err != nil && strings.Contains(err.Error(), "sensitive-token"):
			t.Errorf("the error repeats what was read: %v", err)
		case err == nil && !launch.Offline && (launch.ServiceURL == "" || launch.JobID == "" || launch.JobToken == "" || launch.Epoch < 0):
			t.Errorf("accepted: %+v", launch)
		}
	})
}
