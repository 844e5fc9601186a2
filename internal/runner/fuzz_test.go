package runner

import (
	"bytes"
	"strings"
	"testing"

	"workflowagent/internal/redact"
	"workflowagent/internal/runner/environ"
	"workflowagent/internal/runner/steps"
	"workflowagent/internal/workflow"
)

func FuzzReadLaunch(f *testing.F) {
	f.Add([]byte(`{"serviceURL":"https://s.example","jobID":"j","jobToken":"token-of-the-job","definition":{"env":{"A":"b"},"secretEnv":["A","missing"],"steps":[{"name":"x","run":"workflow-runner source git"}]}}`))
	f.Add([]byte(`{"ServiceURL":"https://s.example","JobID":"j","JobToken":"t","Definition":{"Steps":[{"Run":"workflow-runner pulumi update"},{"Run":"workflow-runner nope"}],"Deployment":{"Source":{"Git":{"RepoURL":"https://u:p%40ss@h/x"}}}}}`))
	f.Add([]byte(`{"offline":true,"definition":{}}`))
	f.Add([]byte("null"))
	f.Add([]byte(`{"serviceURL":"https://sensitive-token@x","jobID":"1","jobToken":"t","proxy":{"HTTPS_PROXY":"http://u:sensitive-token@p"}}`))
	f.Add([]byte(`{"offline":true,"definition":{"steps":null},"forwardedEnv":{"A":"sensitive-token"}}`))
	f.Add([]byte(`{"jobToken":["sensitive-token"]}`))
	f.Add([]byte(`{"probe":{"urls":["%zz"],"seconds":-1},"epoch":9223372036854775808}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		launch, err := ReadLaunch(t.Context(), bytes.NewReader(document), nil)
		if err != nil {
			if len(document) > 40 && strings.Contains(err.Error(), string(document)) || strings.Contains(err.Error(), "sensitive-token") {
				t.Errorf("the error repeats the document: %v", err)
			}
			return
		}
		if !launch.Offline && launch.Probe == nil && (launch.ServiceURL == "" || launch.JobID == "" || launch.JobToken == "" || launch.Epoch < 0) {
			t.Errorf("accepted: %+v", launch)
		}
		secrets := environ.Secrets(launch)
		masks := redact.New(secrets...)
		for _, s := range secrets {
			if len(strings.TrimSpace(s.Value)) >= redact.MinLength && !strings.ContainsAny(s.Value, redact.Marker) && strings.Contains(masks.String("x"+s.Value+"y"), s.Value) {
				t.Errorf("the secret %q is not masked", s.Name)
			}
		}
		if launch.Definition == nil {
			return
		}
		for i, step := range launch.Definition.Steps {
			args, internal, err := steps.Command(step.Run)
			if internal && err == nil && !strings.HasPrefix(step.Run, workflow.RunCommandPrefix) {
				t.Errorf("%q becomes the command %q", step.Run, args)
			}
			_, _ = steps.ParamsFor("", "", nil, launch.Definition.Deployment, step, i) // steps with missing parameters are rejected
		}
	})
}
