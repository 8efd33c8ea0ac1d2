// Replicates a database into another, with the token on every request: documents, batches and the checkpoints.
//
//   TOKEN=34 node replicate.mjs SOURCE TARGET
//
// Needs pouchdb-core, pouchdb-replication and pouchdb-adapter-http, which pouchdb-server brings along.
import { createRequire } from 'node:module'

const require = createRequire(process.env.NODE_PATH ? process.env.NODE_PATH + '/' : import.meta.url)
const PouchDB = require('pouchdb-core').plugin(require('pouchdb-replication')).plugin(require('pouchdb-adapter-http'))

const open = (url) =>
  new PouchDB(url, {
    skip_setup: true, // the database is there; to make one is a write of its own
    fetch: (url, options = {}) => {
      const headers = new Headers(options.headers)
      headers.set('Fencing-Token', process.env.TOKEN)
      return fetch(url, { ...options, headers })
    },
  })

try {
  const done = await PouchDB.replicate(open(process.argv[2]), open(process.argv[3]))
  console.log(`replicated ${done.docs_written}`)
} catch (e) {
  console.error(`replicate: ${e.status} ${e.reason || e.message}`) // the reason is the message of the proxy
  process.exit(1)
}
