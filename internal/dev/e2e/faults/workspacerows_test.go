package faults

// workspacePlace is the heading of the rows about kept workspaces.
const workspacePlace = "Workspaces"

const (
	inTaken     = "taken"
	inCleaned   = "cleaned"
	inGivenBack = "given back"
	inKept      = "kept"
	inRemoved   = "removed"

	testProcesses = "dev/e2e/faults.TestFaultWorkspaces"
	testEngine    = "dev/e2e/engine.TestEngineWorkspaces"
	testStages    = "cmd/workflow-runner.TestKilledRunner"
	testPoints    = "runner/workspace.TestKilled"
)

// The outcomes for the job after the fault.
var (
	used        = outcome{update: "the next job uses the workspace"}
	fresh       = outcome{update: "the next job starts afresh"}
	usedOrFresh = outcome{update: "the next job uses all of the workspace, or starts afresh"}
	without     = outcome{update: "a job runs without the workspace"}
	allOrNone   = outcome{update: "the job keeps all of the workspace until it ends, or runs without it"}
)

// workspaceEvidence is the rows about kept workspaces. Their tests use one stack for many faults.
var workspaceEvidence = []faultRow{
	{phase: inTaken, fault: agentKilled + "; process", want: used, evidence: testProcesses},
	{phase: inCleaned, fault: agentKilled + "; process", want: used, evidence: testProcesses},
	{phase: inRunning, fault: agentKilled + "; process", want: used, evidence: testProcesses},
	{phase: inGivenBack, fault: agentKilled + "; process", want: used, evidence: testProcesses},
	{phase: inTaken, fault: agentKilled + "; docker", want: used, evidence: testEngine},
	{phase: inCleaned, fault: agentKilled + "; docker", want: used, evidence: testEngine},
	{phase: inGivenBack, fault: agentKilled + "; docker", want: used, evidence: testEngine},

	{phase: inTaken, fault: runnerKilled + "; process", want: fresh, evidence: testProcesses},
	{phase: inCleaned, fault: runnerKilled + "; process", want: fresh, evidence: testProcesses},
	{phase: inRunning, fault: runnerKilled + "; process", want: fresh, evidence: testProcesses},
	{phase: inGivenBack, fault: runnerKilled + "; process", want: fresh, evidence: testProcesses},
	{phase: inTaken, fault: "SIGKILL of the container", want: fresh, evidence: testEngine},
	{phase: inCleaned, fault: "SIGKILL of the container", want: fresh, evidence: testEngine},
	{phase: inGivenBack, fault: "SIGKILL of the container", want: fresh, evidence: testEngine},
	{phase: inTaken, fault: engineKilled, want: fresh, evidence: testEngine},
	{phase: inCleaned, fault: engineKilled, want: fresh, evidence: testEngine},
	{phase: inTaken, fault: "SIGKILL of the runner while git fetches or checks out, or pulumi installs", want: fresh, evidence: testStages},
	{phase: inPulumi, fault: "SIGKILL of the runner with a workspace", want: fresh, evidence: testStages},
	{phase: inTaken, fault: "SIGKILL of the runner between two system calls", want: fresh, evidence: testPoints},
	{phase: inCleaned, fault: "SIGKILL of the runner between two system calls", want: fresh, evidence: testPoints},
	{phase: inGivenBack, fault: "SIGKILL of the runner between two system calls", want: fresh, evidence: testPoints},
	{phase: inRunning, fault: "the job fails before pulumi", want: fresh, evidence: testProcesses},
	{phase: inRunning, fault: "the deployment is cancelled", want: fresh, evidence: testProcesses},
	{phase: inRunning, fault: "the job replaces the runner's files or directories", want: fresh, evidence: "runner/workspace.TestReplaced"},
	{phase: inKept, fault: "the record is cut, lost, replaced or of another user", want: fresh, evidence: "runner/workspace.TestDamaged"},
	{phase: inKept, fault: "git's objects are lost or overwritten", want: fresh, evidence: testProcesses},

	{phase: inGivenBack, fault: engineKilled, want: usedOrFresh, evidence: testEngine},
	{phase: inRemoved, fault: "SIGKILL of the agent that makes, measures or removes it", want: usedOrFresh, evidence: "agent/executor/workspacedir.TestKilled"},

	{phase: inTaken, fault: "other jobs of the scope want it at the same time", want: without, evidence: "cmd/workflow-runner.TestConcurrentRunners"},
	{phase: inTaken, fault: "its disk is full", want: without, evidence: "runner.TestWorkspaceFull"},
	{phase: inKept, fault: "a link or a file is in its place", want: without, evidence: testProcesses},
	{phase: inTaken, fault: "a link to another workspace, or a directory of others, is in its place", want: without, evidence: "agent/executor/process.TestRunsWithoutWorkspace"},

	{phase: inRemoved, fault: "a pod mounts it during the removal", want: allOrNone, evidence: "agent/executor/workspacedir.TestLateRunner"},
	{phase: inRemoved, fault: "as before, after a job has replaced the lock", want: allOrNone, evidence: "agent/executor/workspacedir.TestPlantedWorkspaceLock"},
}
