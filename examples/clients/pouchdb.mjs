// PouchDB: its fetch option sets the header, on every request: documents, batches, replication and its checkpoints.
//
//   node pouchdb.mjs upload FILE DB/ID | download DB/ID FILE | copy DB/ID DB/ID | delete DB/ID
//
// Needs pouchdb-core and pouchdb-adapter-http (or pouchdb, which holds both). FILE holds one JSON document.
import { createRequire } from 'node:module'
import { readFileSync, writeFileSync } from 'node:fs'

const require = createRequire(process.env.NODE_PATH ? process.env.NODE_PATH + '/' : import.meta.url)
const PouchDB = require('pouchdb-core').plugin(require('pouchdb-adapter-http'))

const open = (name) =>
  new PouchDB((process.env.PROXY || 'http://127.0.0.1:8080') + '/' + name, {
    skip_setup: true, // the database is there; to make one is a write of its own
    fetch: (url, options = {}) => {
      const headers = new Headers(options.headers)
      headers.set('Fencing-Token', process.env.TOKEN)
      return fetch(url, { ...options, headers })
    },
  })

const at = (path) => {
  const [name, id] = path.split('/')
  return { db: open(name), id }
}

const known = async ({ db, id }) => {
  try {
    return { _id: id, _rev: (await db.get(id))._rev }
  } catch (e) {
    if (e.status === 404) return { _id: id }
    throw e
  }
}

const commands = {
  async upload(file, path) {
    const { db, id } = at(path)
    await db.put({ ...JSON.parse(readFileSync(file)), ...(await known({ db, id })) })
  },
  async download(path, file) {
    const { db, id } = at(path)
    const { _id, _rev, ...document } = await db.get(id)
    writeFileSync(file, JSON.stringify(document) + '\n')
  },
  async copy(from, to) {
    const { _id, _rev, ...document } = await at(from).db.get(at(from).id)
    await at(to).db.put({ ...document, ...(await known(at(to))) })
  },
  async delete(path) {
    const { db, id } = at(path)
    await db.remove(await db.get(id))
  },
}

const [command, ...args] = process.argv.slice(2)
try {
  await commands[command](...args)
} catch (e) {
  console.error(`pouchdb: ${e.status} ${e.reason || e.message}`) // the reason is the message of the proxy
  process.exit(1)
}
