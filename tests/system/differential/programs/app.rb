# Sinatra on puma or webrick: Rack, with the method override that Sinatra and Rails have on.
require 'sinatra/base'

class App < Sinatra::Base
  enable :method_override
  set :bind, '127.0.0.1'
  set :port, ARGV[0].to_i
  set :environment, :production
  set :protection, false
  set :logging, false
  set :strict_paths, false
  post('/v1/pay(.:format)?') { headers 'X-Ran' => 'pay'; '' }
  post('/v1/:id/refund(.:format)?') { headers 'X-Ran' => 'refund'; '' }
  patch('/v1/orders/:id') { headers 'X-Ran' => 'change'; '' }
end
App.run!
