package stacks

import (
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks/rawjson"
	"workflowagent/internal/server/store"
)

// skipsCheckpoints is the member of an update's environment in which clients report whether the variable
// PULUMI_SKIP_CHECKPOINTS is set to true.
const skipsCheckpoints = "pulumi.env.PULUMI_SKIP_CHECKPOINTS"

// fewResources is the number of resources up to which the checkpoints of a stack cost less than the
// runner's question for the version of pulumi.
const fewResources = 50

// SkipCheckpoints reports whether updates of a stack become faster if their client prepares no
// checkpoints. The size of a stack that has never been deployed is unknown.
func SkipCheckpoints(st store.Stack) bool {
	return st.ResourceCount == 0 || st.ResourceCount > fewResources
}

// checkJournal returns an error if a deployment's update would store its state only at its end, because
// its client skips checkpoints but sends no journal. The runner makes clients skip them that it expects to
// send one.
func checkJournal(tx *store.Tx, u store.Update) error {
	if u.DeploymentID == "" || u.Preview || u.JournalVersion > 0 {
		return nil
	}
	program, err := tx.Program(u.ID)
	if err != nil {
		return err
	}
	environment := rawjson.Member(rawjson.Member([]byte(program), "metadata"), "environment")
	if string(rawjson.Member(environment, skipsCheckpoints)) != `"true"` {
		return nil
	}
	// Clients explain a conflict as one with another update, so the error is of another kind.
	return fault.Invalid("this update skips checkpoints (PULUMI_SKIP_CHECKPOINTS) but sends no journal: if it were killed, " +
		"the state would lack its resources; set the environment variable PULUMI_SKIP_CHECKPOINTS to false in the deployment settings")
}
