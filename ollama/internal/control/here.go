package control

import (
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
)

// mayHaveOwnersToken is true of a server on this machine: the token in the owner's home goes over no network, and not to
// a program that another user runs where the server would be. (It asks once, so that a name which resolves anew in
// between, or a port that changes hands, gets past it.)
func mayHaveOwnersToken(base *url.URL) bool {
	port, err := strconv.ParseUint(base.Port(), 10, 16)
	return err == nil && isHere(base.Hostname()) && !heldByAnother(uint16(port))
}

// isHere is true of a host all of whose addresses are this machine's.
func isHere(host string) bool {
	addresses, err := net.LookupHost(host)
	if err != nil || len(addresses) == 0 {
		return false
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, address := range addresses {
		if !isOwn(address, own) {
			return false
		}
	}
	return true
}

func isOwn(address string, own []net.Addr) bool {
	ip := net.ParseIP(address)
	if ip.IsLoopback() || ip.IsUnspecified() {
		return true
	}
	for _, one := range own {
		if network, ok := one.(*net.IPNet); ok && network.IP.Equal(ip) {
			return true
		}
	}
	return false
}

// heldByAnother is true where the system tells that a user who is neither this one nor root listens on a port. Linux
// tells; where nothing is told nothing is held against anybody.
func heldByAnother(port uint16) bool {
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		for _, uid := range listeners(string(text), port) {
			if uid != 0 && uid != os.Geteuid() {
				return true
			}
		}
	}
	return false
}

// listeners are the users who listen on a port, by a table as in proc_net_tcp(5): the address is in the second column,
// the state in the fourth, the user in the eighth.
func listeners(table string, port uint16) []int {
	const listening = "0A"
	var uids []int
	for _, line := range strings.Split(table, "\n") {
		columns := strings.Fields(line)
		if len(columns) < 8 || columns[3] != listening {
			continue
		}
		_, local, _ := strings.Cut(columns[1], ":")
		if number, err := strconv.ParseUint(local, 16, 16); err != nil || uint16(number) != port {
			continue
		}
		if uid, err := strconv.Atoi(columns[7]); err == nil {
			uids = append(uids, uid)
		}
	}
	return uids
}
