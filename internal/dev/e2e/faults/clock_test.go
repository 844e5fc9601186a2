package faults

// clockRows are about clocks, which only unit tests can set, and about leases of updates, which
// last longer than a row may.
var clockRows = []faultRow{
	{
		phase: inRunning, fault: "the server's clock jumps an hour ahead, or the server was away for one", want: kept,
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
		phase: inPulumi, fault: "SIGSTOP of the server for longer than the update's lease; SIGKILL, and a start after that time", want: kept,
		evidence: "server.TestPauseLongerThanTheUpdateLease",
	},
	{
		phase: inPulumi, fault: "SIGSTOP of one of two servers, and then of both, for longer than the update's lease", want: kept,
		evidence: "server.TestPauseOfReplicas",
	},
	{
		phase: inPulumi, fault: "the database takes no writes for longer than the update's lease", want: kept,
		evidence: "server.TestDatabaseThatTakesNoWrites",
	},
	{
		phase: inPulumi, fault: "the server's clock is set an hour ahead, or an hour back", want: kept,
		evidence: "server/stacks.TestLeaseKeepsWhatWasLeft",
	},
}
