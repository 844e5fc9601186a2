package faults

// clockRows are about clocks, which only unit tests can set, and about leases of updates, which
// last longer than a row may.
var clockRows = []faultRow{
	{
		phase: inRunning, fault: "the server's clock jumps an hour ahead, or the server was stopped for one", want: kept,
		evidence: "server/deployments.TestSilenceWhileTheServerWasAwayDoesNotCount",
	},
	{
		phase: inRunning, fault: "the server's clock jumps an hour back", want: kept,
		evidence: "server/deployments.TestClockThatGoesBackLosesNoJob",
	},
	{
		phase: inRunning, fault: "the clock of one of two servers is wrong by years", want: kept,
		evidence: "server/deployments.TestReplicaWithAFalseClock",
	},
	{
		phase: inPulumi, fault: "SIGSTOP of the server, or SIGKILL and a later start, for longer than the update's lease", want: kept,
		evidence: "server.TestPauseLongerThanTheUpdateLease",
	},
	{
		phase: inPulumi, fault: "SIGSTOP of one of two servers, then of both, for longer than the update's lease", want: kept,
		evidence: "server.TestPauseOfReplicas",
	},
	{
		phase: inPulumi, fault: "the database accepts no writes for longer than the update's lease", want: kept,
		evidence: "server.TestDatabaseThatTakesNoWrites",
	},
	{
		phase: inPulumi, fault: "the server's clock is set an hour or a year ahead or back", want: kept,
		evidence: "server/stacks.TestLeaseKeepsWhatWasLeft",
	},
}
