// Package layout describes what the owner of a test cluster and the cluster's own processes must agree on: files,
// addresses, and the requests by which the owner starts and stops programs.
package layout

import (
	"fmt"
	"net/netip"
	"path/filepath"
)

// Path is the search path for programs. Debian keeps programs of the system out of the PATH of most users.
const Path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Count is the number of clusters that can exist on a machine at the same time.
const Count = 100

// Service is the address of the API server for pods, the first one of ServiceRange.
const (
	Service      = "10.96.0.1"
	ServiceRange = "10.96.0.0/16"
)

// Place is a cluster's share of the machine's names and addresses. Each cluster has its own number.
type Place struct {
	Number int `json:"number"`
}

// HostIP is the address of the machine on its link to the cluster. Pods reach listeners on it.
func (p Place) HostIP() netip.Addr { return netip.AddrFrom4([4]byte{172, 29, byte(p.Number), 1}) }

// NodeIP is the address of the cluster's node, and of the API server for the machine.
func (p Place) NodeIP() netip.Addr { return netip.AddrFrom4([4]byte{172, 29, byte(p.Number), 2}) }

// LinkBits is the length of the prefix of the link's network.
const LinkBits = 30

// Pods is the network of the pods.
func (p Place) Pods() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 28, byte(p.Number), 0}), 24)
}

// Link is the machine's interface to the cluster.
func (p Place) Link() string { return fmt.Sprintf("wfcluster%d", p.Number) }

// Group is the name of the control groups above all pods.
func (p Place) Group() string { return fmt.Sprintf("workflowagent-cluster-%d", p.Number) }

// Lock is the file that the keeper of the cluster locks.
func (p Place) Lock() string { return "/run/lock/" + p.Group() }

// Start is a request to start a program.
type Start struct {
	// Args are the path of the program and its arguments.
	Args []string `json:"args"`
	// Env is the complete environment.
	Env []string `json:"env"`
}

// Socket is the socket of the first process, for HTTP requests. PUT /NAME with a [Start] starts a program,
// DELETE /NAME?signal=N sends it a signal and waits for its end, and GET /NAME responds with status 200 while it
// runs.
func Socket(dir string) string { return filepath.Join(dir, "control.sock") }

// Log is the log file of a program.
func Log(dir, name string) string { return filepath.Join(dir, "log", name+".log") }
