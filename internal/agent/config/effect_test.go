package config

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

const (
	agentProgram = "cmd/customer-managed-workflow-agent"
	daemon       = "internal/host/daemon"
	agentLoop    = "internal/agent"
	dockerPlace  = "internal/agent/executor/docker"
	pods         = "internal/agent/executor/kubernetes/podspec"
	wire         = "internal/protocol"
	pauses       = "internal/retry"
	healthPort   = "internal/agent/health"
	exchange     = "internal/agent/pooltoken"
	endToEnd     = "internal/dev/e2e/"
	upkeep       = "internal/host/upkeep"
	releases     = "internal/agent/mirror"
	thisPackage  = "internal/agent/config"
	keeper       = "internal/agent/workspace"
)

type effect struct{ dir, test string }

// effects lists the tests for each key that check its effect, and not only that the key is read.
var effects = map[string][]effect{
	"token":                          {{agentProgram, "TestKeysOfPolls"}, {agentProgram, "TestConfigureTakesItsFlags"}, {agentLoop, "TestRefusedTokenIsNotHammered"}},
	"service_url":                    {{agentProgram, "TestKeysOfPolls"}},
	"working_directory":              {{agentProgram, "TestKeysOfAJob"}, {dockerPlace, "TestRunnerForAnotherArchitecture"}},
	"shared_volume_directory":        {{agentProgram, "TestKeysOfAJob"}, {dockerPlace, "TestSharedDirectoryIsMounted"}, {dockerPlace, "TestConformanceOnSharedDirectory"}},
	"deploy_target":                  {{agentProgram, "TestKeysOfAJob"}, {endToEnd + "engine", "TestEngineRunsDeployments"}, {agentProgram, "TestMistakesHaveTheirExitCode"}},
	"single_run":                     {{agentProgram, "TestKeysOfAJob"}, {agentLoop, "TestSingleRun"}},
	"pull_image":                     {{dockerPlace, "TestPullPolicy"}, {dockerPlace, "TestImageErrors"}},
	"enabled_workflow_types":         {{agentProgram, "TestKeysOfPolls"}, {agentProgram, "TestKeysThatRefuseJobs"}},
	"env_forward_allowlist":          {{agentProgram, "TestKeysOfAJob"}, {endToEnd + "faults", "TestFaultSecretsStayHidden"}},
	"oidc_token_file":                {{endToEnd + "clients", "TestClientsOfAnIssuer"}, {exchange, "TestRenewalReadsTheFileAgain"}},
	"organization_name":              {{exchange, "TestExchange"}, {endToEnd + "clients", "TestClientsOfAnIssuer"}},
	"runner_pool_id":                 {{exchange, "TestExchange"}, {endToEnd + "clients", "TestClientsOfAnIssuer"}},
	"token_expiration":               {{exchange, "TestExchange"}},
	"polling_interval":               {{agentProgram, "TestKeysOfPolls"}, {agentLoop, "TestPollingInterval"}, {agentLoop, "TestRetryAfterSupersedesTheInterval"}},
	"polling_interval_override":      {{agentProgram, "TestKeyPollingIntervalOverride"}, {agentLoop, "TestIntervalOverrideIgnoresRetryAfterAndLongPolls"}},
	"job_status_loop_interval":       {{agentProgram, "TestKeyJobStatusLoopInterval"}},
	"request_timeout":                {{agentProgram, "TestKeysOfPolls"}, {wire, "TestRequestTimeout"}},
	"request_retry_count":            {{agentProgram, "TestKeysOfRetries"}, {wire, "TestStatusIsRepeated"}},
	"request_retry_wait":             {{agentProgram, "TestKeysOfRetries"}, {pauses, "TestPause"}},
	"request_retry_max_wait":         {{agentProgram, "TestKeysOfRetries"}, {pauses, "TestPause"}},
	"circuit_breaker_failures":       {{agentProgram, "TestKeysOfTheCircuitBreaker"}, {wire, "TestBreakerProbesAndRecovers"}},
	"circuit_breaker_timeout":        {{agentProgram, "TestKeysOfTheCircuitBreaker"}, {wire, "TestBreakerTimeoutLetsAFullPollThrough"}},
	"http_server_port":               {{agentProgram, "TestKeysOfPolls"}, {healthPort, "TestTakenPortIsAWarning"}, {healthPort, "TestServeIsOff"}},
	"http_server_address":            {{agentProgram, "TestKeysOfPolls"}},
	"health_threshold":               {{agentProgram, "TestKeyHealthThreshold"}, {healthPort, "TestHealthz"}},
	"syslog":                         {{daemon, "TestSyslogGetsEveryLine"}, {daemon, "TestSyslogThatIsNotThere"}},
	"log_format":                     {{agentProgram, "TestKeysOfPolls"}},
	"log_job_output":                 {{agentProgram, "TestKeysOfAJob"}, {agentProgram, "TestKeyLogJobOutput"}},
	"max_concurrent_jobs":            {{agentProgram, "TestKeyMaxConcurrentJobs"}, {agentLoop, "TestSlotsAndPresence"}},
	"state_directory":                {{agentProgram, "TestKeysOfPolls"}, {agentLoop, "TestIdentityIsStableAndExclusive"}},
	"allowed_images":                 {{agentProgram, "TestKeysThatRefuseJobs"}, {thisPackage, "TestAllowsImage"}},
	"allowed_repositories":           {{agentProgram, "TestKeysThatRefuseJobs"}, {thisPackage, "TestAllowsRepository"}},
	"ca_certificate_file":            {{agentProgram, "TestKeysOfAJob"}, {wire, "TestPrivateCertificateAuthority"}},
	"workspaces":                     {{agentLoop, "TestWorkspaceOfAJob"}, {daemon, "TestWorkspaceSettings"}},
	"workspace_max_size":             {{daemon, "TestWorkspaceSettings"}, {keeper, "TestPrune"}},
	"workspace_max_age":              {{daemon, "TestWorkspaceSettings"}, {keeper, "TestPrune"}},
	"go_mirror":                      {{agentProgram, "TestKeysOfAJob"}, {thisPackage, "TestMirrors"}},
	"npm_mirror":                     {{agentProgram, "TestKeysOfAJob"}, {thisPackage, "TestMirrors"}},
	"pypi_mirror":                    {{agentProgram, "TestKeysOfAJob"}, {thisPackage, "TestMirrors"}},
	"plugin_mirror":                  {{agentProgram, "TestKeysOfAJob"}, {thisPackage, "TestMirrors"}},
	"docker_network":                 {{endToEnd + "clients", "TestEngineDoctor"}, {dockerPlace, "TestLoopback"}},
	"docker_server_address":          {{dockerPlace, "TestServerAddress"}, {"internal/runner", "TestForward"}},
	"docker_memory":                  {{endToEnd + "engine", "TestEngineKeys"}, {endToEnd + "engine", "TestEngineReportsWhyAJobEnded"}},
	"docker_cpus":                    {{endToEnd + "engine", "TestEngineKeys"}},
	"docker_pids_limit":              {{endToEnd + "engine", "TestEngineKeys"}, {dockerPlace, "TestHardening"}},
	"auto_update":                    {{upkeep, "TestUpdateModes"}, {endToEnd + "init", "TestInitUpdateOfAService"}},
	"update_channel":                 {{upkeep, "TestKeysOfUpdates"}},
	"update_url":                     {{upkeep, "TestKeysOfUpdates"}, {endToEnd + "init", "TestInitUpdateOfAService"}},
	"kubernetes_namespace":           {{daemon, "TestPodSettings"}, {pods, "TestGolden"}},
	"pod_template_file":              {{daemon, "TestPodSettings"}, {agentProgram, "TestConfigPod"}, {pods, "TestReload"}},
	"pod_start_timeout":              {{daemon, "TestPodSettings"}},
	"kubernetes_workspace_claim":     {{daemon, "TestPodSettings"}, {pods, "TestGolden"}},
	"kubernetes_workspace_host_path": {{daemon, "TestPodSettings"}, {pods, "TestGolden"}},
	"debug_pod_ttl":                  {{daemon, "TestPodSettings"}},
	"image":                          {{daemon, "TestPodSettings"}, {agentProgram, "TestConfigPod"}, {pods, "TestGolden"}},
	"image_pull_policy":              {{daemon, "TestPodSettings"}, {pods, "TestGolden"}},
	"service_account_name":           {{daemon, "TestPodSettings"}, {pods, "TestServiceAccountToken"}},
	"num_cpus":                       {{daemon, "TestPodSettings"}, {pods, "TestGolden"}},
	"mem_quantity":                   {{daemon, "TestPodSettings"}, {pods, "TestParseMemory"}},
	"debug_pod":                      {{daemon, "TestPodSettings"}, {agentProgram, "TestKeysOfAnotherTarget"}, {thisPackage, "TestWarnings"}},
	"pod_template":                   {{daemon, "TestPodSettings"}, {agentProgram, "TestConfigPod"}},
	"override_image_reference":       {{agentProgram, "TestKeysThatRefuseJobs"}, {agentLoop, "TestImageOverride"}},
	"docker_host":                    {{agentProgram, "TestKeysOfAJob"}, {endToEnd + "engine", "TestEngineRunsDeployments"}, {dockerPlace, "TestDiscover"}},
	"pulumi_mirror":                  {{agentProgram, "TestKeysOfTheMirror"}, {releases, "TestBring"}},
	"pulumi_checksums_file":          {{agentProgram, "TestKeysOfTheMirror"}, {releases, "TestUnusableArchives"}},
}

func TestEveryKeyHasAnEffect(t *testing.T) {
	tests := map[string]map[string]bool{}
	missing := map[string]bool{}
	for key := range effects {
		missing[key] = true
	}
	for _, f := range Table().Fields() {
		if len(effects[f.Key]) == 0 {
			t.Errorf("%s: no test shows its effect", f.Key)
		}
		delete(missing, f.Key)
		for _, e := range effects[f.Key] {
			if tests[e.dir] == nil {
				tests[e.dir] = testsIn(t, filepath.Join("../../..", e.dir))
			}
			if !tests[e.dir][e.test] {
				t.Errorf("%s: the test %s does not exist in %s", f.Key, e.test, e.dir)
			}
		}
	}
	for key := range missing {
		t.Errorf("%s is no longer a key", key)
	}
}

func testsIn(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no tests: %v", dir, err)
	}
	names := map[string]bool{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if f, isFunc := d.(*ast.FuncDecl); isFunc && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				names[f.Name.Name] = true
			}
		}
	}
	return names
}
