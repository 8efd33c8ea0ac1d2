package hold

// Known is the number of resources of which something is in memory, Due that of those that wait for their time alone.
func (m *Manager) Known() (known, due int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.entries), len(m.due)
}
